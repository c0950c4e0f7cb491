package prefetch

import (
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Source is where a Race fetches blobs. It is shared with those who really
// need them, and sees to it that they come first. fetch.ReadThrough is one.
type Source interface {
	// LocalDirectory returns the Directory of that digest if it is here and valid. It
	// waits for nothing but the disk.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	// PrefetchDirectories makes blobs local that LocalDirectory will be asked for,
	// before those of Prefetch, waits for that, and returns those that were fetched
	// because of it. The error tells that some did not come.
	PrefetchDirectories(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error)
	// Prefetch does the same for files.
	Prefetch(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error)
	// PrefetchRanges has parts of d come ahead of the rest, which comes with Prefetch or for those
	// who open it. It does not wait. The parts are kept until release is called.
	PrefetchRanges(ctx context.Context, d digest.Digest, parts []span.Span) (release func())
}

// A Spec says what one Race is about.
type Spec struct {
	Root   digest.Digest // of the input root
	Source Source
	// Profile says what is likely to be read; nil if nothing is known. One that does not have
	// the root, or has nearly everything, counts as nil.
	Profile *Profile
	// Origin is that of the Profile. What is Coarse has to prove itself sooner.
	Origin Origin
	Limits *Limits // nil: those of NewLimits, for this Race alone
}

// maxFalsePositives is the share of all paths from which on a Profile says nothing.
const maxFalsePositives = 0.3

// profile returns the Profile if it says anything.
func (s Spec) profile() *Profile {
	if p := s.Profile; p != nil && p.Contains(RootHash) && p.FalsePositives() < maxFalsePositives {
		return p
	}
	return nil
}

// A Race makes local what an action is likely to read, ahead of the action. It
// starts with Start and ends with Stop; its other methods may be called
// concurrently until then. Nothing that it finds, lacks or fails at is an error:
// what is invalid or missing is passed over.
//
// It takes some 100 bytes for each file that it foresees, and goes through no more
// than 65,536 directories and 262,144 files.
type Race struct {
	source  Source
	limits  *Limits
	profile *Profile // nil: nothing is known
	origin  Origin
	root    digest.Digest
	reads   reads
	queue   *queue

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	fetched []digest.Digest // guarded by mu; files that were fetched ahead
	stats   Stats           // guarded by mu
	parts   []func()        // guarded by mu; release those that were asked for
}

// The bounds of one Race.
const (
	maxFiles = 1 << 18
	// smallBytes is the size up to which a file is fetched that a Profile is less sure of.
	smallBytes = 64 << 10
	// The calls in flight for files, and what one for small files asks for.
	maxSmallCalls = 8
	maxLargeCalls = 4
	filesPerCall  = 1000
	bytesPerCall  = 2 << 20
	leastPerCall  = 64 << 10
	directorySets = 4
	// directoriesPerCall is enough for a level of most trees; the calls for larger
	// ones run side by side.
	directoriesPerCall = 2000
)

// Start begins a Race and returns at once. The caller stops it.
func Start(ctx context.Context, s Spec) *Race {
	ctx, cancel := context.WithCancel(ctx)
	r := &Race{
		source: s.Source, limits: s.Limits, profile: s.profile(), origin: s.Origin, root: s.Root, cancel: cancel,
		reads: reads{wake: make(chan struct{}, 1)},
	}
	var known ranges
	if r.profile != nil {
		known = r.profile.ranges
	}
	if r.limits == nil {
		r.limits = NewLimits(LimitsOptions{})
	}
	r.queue = newQueue(s.Origin, known, &r.limits.pace)
	r.running.Go(func() { r.weigh(ctx) })
	if r.profile != nil {
		r.fetchRemembered(ctx)
		r.running.Go(func() { r.walk(ctx, r.profile, maxDirectories) })
	}
	r.running.Go(func() { r.send(ctx) })
	return r
}

// Stop cancels what is under way, except what somebody else waits for, and returns
// when nothing of the Race runs any more. It may be called again.
func (r *Race) Stop() Stats {
	r.cancel()
	r.running.Wait()
	r.dropParts()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Fetched returns the files that were fetched ahead, for a Tally. It is called after Stop.
func (r *Race) Fetched() []digest.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched
}
