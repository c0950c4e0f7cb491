package prefetch

import (
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// A Source fetches blobs for a Race. It also serves callers that wait, and serves them first.
// fetch.ReadThrough implements it.
type Source interface {
	// LocalDirectory returns the Directory with that digest if it is local and valid. It waits only
	// for the disk.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	// PrefetchDirectories makes blobs local for later calls of LocalDirectory, and goes ahead of
	// Prefetch. It waits until they are local, and returns the blobs that it fetched. An error
	// means that some could not be fetched.
	PrefetchDirectories(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error)
	// PrefetchTree makes at most so many directories of a tree local, of all levels in one call. It
	// calls some when further ones are, while others come, and returns those that it fetched, also
	// with an error, which wraps errors.ErrUnsupported if storage has no such call.
	PrefetchTree(ctx context.Context, root digest.Digest, most int, some func()) (fetched []digest.Digest, err error)
	// Prefetch does the same for files.
	Prefetch(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error)
	// PrefetchRanges fetches parts of d before the rest. Prefetch, or a caller that opens d,
	// fetches the rest. It does not wait. The parts are kept until release is called.
	PrefetchRanges(ctx context.Context, d digest.Digest, parts []span.Span) (release func())
	// Yield sets whether large files of Prefetch stand still while a caller waits for a blob that
	// was not prefetched, and as long again: they leave the link to it. At first they do not. Those
	// that a caller waits for never do.
	Yield(yields bool)
}

// A Spec describes one Race.
type Spec struct {
	Root   digest.Digest // of the input root
	Source Source
	// Profile has the expected reads; nil if there is none. A profile that lacks the root, or
	// contains almost everything, counts as nil.
	Profile *Profile
	// Origin is the origin of Profile. A Coarse profile is trusted less.
	Origin Origin
	Limits *Limits // nil: NewLimits, for this Race alone
	// Contents returns the verified bytes of a file if it is local, to find which files it mentions.
	// It waits only for the disk. Nil: no file is read ahead because another one mentions it.
	Contents func(d digest.Digest) ([]byte, bool)
}

// A Command is the command of an action.
type Command = follow.Command

// maxFalsePositives is the share of all paths from which on a Profile is useless.
const maxFalsePositives = 0.3

// profile returns the Profile if it is useful.
func (s Spec) profile() *Profile {
	if p := s.Profile; p != nil && p.Contains(RootHash) && p.FalsePositives() < maxFalsePositives {
		return p
	}
	return nil
}

// A Race makes files local before an action reads them, if the action is expected to read them. It
// begins with Start and ends with Stop; its other methods may be called concurrently in between.
// Its failures are never errors: it skips invalid and missing entries.
//
// It takes about 100 bytes for each predicted file, and visits at most 65,536 directories and
// 262,144 files.
type Race struct {
	source  Source
	limits  *Limits
	profile *Profile // nil: nothing is known
	origin  Origin
	root    digest.Digest
	events  events
	queue   *queue
	// mentions is nil if contents are not read.
	mentions *follow.Follower

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	fetched []digest.Digest // guarded by mu; files that were fetched ahead
	// forecast is zero until the walk has ended with the whole tree, as far as the profile goes.
	// Guarded by mu.
	forecast Forecast
	stats    Stats    // guarded by mu
	releases []func() // guarded by mu; of the parts that were requested
	// mentioned are files that were requested because others mention them. Guarded by mu.
	mentioned map[PathHash]follow.File
	wanted    []digest.Digest // guarded by mu; directories for mentions that no call has asked for yet
	wanting   int             // guarded by mu; calls for them
}

// The bounds of one Race.
const (
	// The calls in flight for files, and the size of one for small files.
	maxSmallCalls = 8
	maxLargeCalls = 4
	filesPerCall  = 1000
	bytesPerCall  = 2 << 20
	leastPerCall  = 64 << 10
	// maxDirectoryCalls limits those for directories: of a walk, and for mentions.
	maxDirectoryCalls = 4
	// directoriesPerCall is enough for a level of most trees; the calls for larger
	// ones run side by side.
	directoriesPerCall = 2000
)

// Start begins a Race and returns at once. The caller must call Stop.
func Start(ctx context.Context, s Spec) *Race {
	ctx, cancel := context.WithCancel(ctx)
	r := &Race{
		source: s.Source, limits: s.Limits, profile: s.profile(), origin: s.Origin, root: s.Root, cancel: cancel,
		events: events{wake: make(chan struct{}, 1)},
	}
	var known ranges
	if r.profile != nil {
		known = r.profile.ranges
	}
	if r.limits == nil {
		r.limits = NewLimits(LimitsOptions{})
	}
	r.queue = newQueue(s.Origin, known, &r.limits.pace)
	if s.Contents != nil && !r.limits.options.NoMentions {
		r.follow(ctx, s)
	}
	r.running.Go(func() { r.listen(ctx) })
	if r.profile != nil {
		r.fetchRemembered(ctx)
		first := r.foreseeFirst()
		r.running.Go(func() { r.walk(ctx, r.profile, first, maxDirectories) })
	}
	r.running.Go(func() { r.send(ctx) })
	return r
}

// Stop cancels the fetches of the Race, except those that have other callers too, and returns when
// all its goroutines have ended. It may be called again.
func (r *Race) Stop() Stats {
	r.cancel()
	r.running.Wait()
	r.dropParts()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Forecast returns the files of the tree that the profile predicts; zero if the Race has not seen all
// of them. Call it after Stop.
func (r *Race) Forecast() Forecast {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forecast
}

// Fetched returns the prefetched files, for a Tally. Call it after Stop.
func (r *Race) Fetched() []digest.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched
}
