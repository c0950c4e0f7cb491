package follow

import (
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Mentioned and unread files, there or on their way, have at most FreeBytes, and Credit times the
// bytes of mentioned files that the action has read. With a profile, whose files share the link with
// them, those that it lacks have FreeBytes only when it has proved wrong (freeOfLack).
const (
	FreeBytes = 4 << 20
	Credit    = 2
)

// The bounds of reading ahead by mentions.
const (
	// maxMentioned limits the files that are known by mentions, and what waits for something.
	maxMentioned = 1 << 16
	// mentionDirectories limits the directories that are fetched for mentions.
	mentionDirectories = 2048
	// maxOpened limits what waits to be handled.
	maxOpened = 4096
	// freeOfLack is how much of FreeBytes there is for each opened file that a profile lacks.
	freeOfLack = 256 << 10
	// reservedPart: 1/reservedPart of FreeBytes, or of what there is of them, is only for what is
	// read next: files before which the action reads less than nextBytes of those that are under
	// way.
	reservedPart = 2
	nextBytes    = 1 << 20
	// lateBytes is the credit for each mentioned file that the action opened before there was credit
	// to request it, or when only the reserved ones were left for it: it waits a round trip, in which
	// the link carries little else.
	lateBytes = 512 << 10
	// sureWords is how many doubtful words of the command line must be right for the others to be
	// doubtful no more.
	sureWords = 2
	// farPart: what unopened doubtful files mention has 1/farPart of the credit.
	farPart = 2
	// leastBytes is for how many bytes a smaller file counts that is requested and unread: each
	// costs time, and room in the store.
	leastBytes = 2 << 10
	// roomForPaths limits the paths of mentioned and of opened files, each with entryBytes.
	roomForPaths = 32 << 20
	entryBytes   = 128
	// maxFileBytes is the size above which a mentioned file is not requested.
	maxFileBytes = 512 << 10
	// Mentions and path components are looked at freeLooks times, about a second, and looksOfRight
	// times for each mentioned file that the action has read.
	freeLooks    = 1 << 21
	looksOfRight = 1 << 10
)

// Directories has the local directories of an input tree.
type Directories interface {
	// LocalDirectory returns a Directory if it is local and valid. It waits only for the disk.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
}

// A Spec describes one Follower.
type Spec struct {
	Root   digest.Digest // of the input root
	Source Directories
	// Contents returns the verified bytes of a file if it is local. It waits only for the disk.
	Contents func(d digest.Digest) ([]byte, bool)
	Scans    *Scans
	// Foresees reports whether a profile has a file. It knows better than mentions. Nil: there is no
	// profile.
	Foresees func(path string) bool
	// Unmentioned takes an opened and Lacked file that no other one mentions as far as is known.
	Unmentioned func(path string)
	// Request takes files to be requested.
	Request func(files []File)
	// Fetch fetches directories; Learned is called when they are there.
	Fetch func(ds []digest.Digest)
}

// A Command may mention files in Args by their path from WorkingDirectory, which is relative to the
// root.
type Command struct {
	Args             []string
	WorkingDirectory string
}

// A File is a file that another one mentions.
type File struct {
	Path   string
	Digest digest.Digest
	// Doubtful: it may be no mention.
	Doubtful bool
}

// A Follower finds files that others mention. Its methods but Run do not wait, and may be called
// concurrently. Those of nil do nothing.
type Follower struct {
	spec Spec
	wake chan struct{} // one place

	mu   sync.Mutex
	news news // guarded by mu; to handle
}

// New returns a Follower, which works while Run runs.
func New(s Spec) *Follower {
	return &Follower{spec: s, wake: make(chan struct{}, 1)}
}

// news is what has happened since the last look.
type news struct {
	command *Command
	opened  []open
	came    []came
	ended   []ended
	learned bool // there are more directories
	settled bool // no more come by themselves
}

// A Foresight is what a profile knew of a file that the action opens.
type Foresight uint8

const (
	Lacked   Foresight = iota // nothing that is believed, or there is none
	Delayed                   // it has the file, but had no credit to request it
	Foreseen                  // it was requested, or would have been in its turn
)

// open is a file that the action opens.
type open struct {
	path  string
	known Foresight
}

// came is a file that the action has opened: its content is there.
type came struct {
	digest digest.Digest
	was    cas.Presence
}

// ended is a call for files.
type ended struct {
	files   []File // those that Request was called with
	fetched []digest.Digest
	failed  bool // parts of others may have come
}

func (f *Follower) note(add func(*news)) {
	if f == nil {
		return
	}
	f.mu.Lock()
	add(&f.news)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Follower) take() news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.news
	f.news = news{settled: n.settled}
	return n
}

// KnowCommand says what the command is. It is called once at most.
func (f *Follower) KnowCommand(c Command) { f.note(func(n *news) { n.command = &c }) }

// Opened reports that the action opens a file for the first time.
func (f *Follower) Opened(path string, known Foresight) {
	f.note(func(n *news) {
		if len(n.opened) < maxOpened && len(path) <= maxPath {
			n.opened = append(n.opened, open{path, known})
		}
	})
}

// Came reports that the content of a file that the action opens is there, or that of an arriving
// one begins to be, and where it was before.
func (f *Follower) Came(d digest.Digest, was cas.Presence) {
	f.note(func(n *news) {
		if len(n.came) < maxOpened {
			n.came = append(n.came, came{d, was})
		}
	})
}

// Ended reports the end of a call: which of its files were requested here, and what it fetched. An
// error means that there are others that it began to fetch.
func (f *Follower) Ended(files []File, fetched []digest.Digest, err error) {
	f.note(func(n *news) { n.ended = append(n.ended, ended{files, fetched, err != nil}) })
}

// Learned reports that there are more directories, Settled that no more come by themselves.
func (f *Follower) Learned() { f.note(func(n *news) { n.learned = true }) }

// Settled is described at Learned.
func (f *Follower) Settled() { f.note(func(n *news) { n.learned, n.settled = true, true }) }

// Run handles what happens until ctx ends. It returns soon then: the end of an action waits for it.
func (f *Follower) Run(ctx context.Context) {
	s := newSearch(f)
	for {
		n := f.take()
		s.settled = n.settled
		if n.command != nil {
			s.commanded(ctx, n.command)
		}
		// First what is known by now, then which files the action opens.
		for _, e := range n.ended {
			s.ended(ctx, e)
		}
		for _, c := range n.came {
			s.came(ctx, c)
		}
		if n.learned {
			s.again(ctx)
		}
		s.catchUp(ctx)
		for _, o := range n.opened {
			if mentioned := s.opened(ctx, o.path, o.known); !mentioned && o.known == Lacked {
				s.Unmentioned(o.path)
			}
		}
		s.catchUp(ctx)
		s.request()
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
	}
}
