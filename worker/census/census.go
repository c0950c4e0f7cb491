package census

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how long there must be too many hidden objects before all are stopped: the
	// objects of an ending process are hidden until the kernel has freed them. While a command is
	// looked at it is up to longest more, as it may turn out to have them.
	patience = 2 * time.Second
	// falls: the kernel is freeing hidden objects if at least 1/falls of them have gone.
	falls = 8
	// share limits the time for counting many objects to 1/share of all time, unless their number
	// keeps growing. A command can make counting its processes slow, so the pause is at most
	// longestRest.
	share = 20
	// longestRest is how long there is no count at most because of a look at processes.
	longestRest = 10 * time.Second
	// longest is the time that a look at processes may take, and that a command waits for a count
	// of all. A command can have millions of descriptors and mounts.
	longest = 5 * time.Second
	// mostCounts run at a time: the kernel may not end one.
	mostCounts = 4
	// mostOfOthers is how many times Kind.Countable others may have.
	mostOfOthers = 16
)

// A Kind is a kind of objects. Its functions may be called concurrently.
type Kind struct {
	// Most is how many objects a command may have.
	Most int
	// Countable is how many objects can be attributed: looking at more takes too much memory or
	// time.
	Countable int
	// All counts the objects of the machine, up to most or some more. It may return 0 if there are
	// at most Kind.Most.
	All func(most int) (int, error)
	// Of counts the objects that processes show, up to most or some more. The count is uncertain if
	// objects may have counted twice, or were skipped because ctx ended.
	Of func(ctx context.Context, pids []int, most int) (n int, certain bool)
	// Shown counts the objects that any process shows, all of them for the first processes, until
	// ctx ends.
	Shown func(ctx context.Context, all int) int
}

// A Verdict is the result of a Census about a command.
type Verdict int

// The verdicts.
const (
	Innocent Verdict = iota // or there are too few objects to matter
	Suspect                 // the command may have too many
	Guilty                  // the command certainly has too many
	Unknown                 // some command has too many, but the owner is unknown
)

// A Census counts objects of one kind for all commands of a worker.
type Census struct {
	kind Kind

	mu     sync.Mutex
	latest *tally    // guarded by mu, as all below
	began  time.Time // when that began
	rests  time.Time // when the next count may begin
	counts int       // that run
	looks  int       // at commands, that run
	begun  int       // calls of Begin
	last   int       // objects in all
	others others
	// since is the time since when there have been too many hidden objects, and peak their highest
	// number; zero: there are not too many.
	since time.Time
	peak  int
	found bool // overuse with an unknown owner; until Begin
}

// others has the number of objects when no command ran, or a lower number that was seen later: all
// objects, and those that no process showed.
type others struct{ all, hidden int }

// A tally is one count for all commands that look at the time.
type tally struct {
	others others // when it began
	begun  int    // likewise
	all    shared[total]
	found  shared[bool] // there is overuse with an unknown owner; counts the hidden ones, too
}

// A total is a count of all objects.
type total struct {
	n    int
	took time.Duration
	err  error
}

// New returns a Census of a kind. Begin must be called before the first command starts.
func New(k Kind) *Census { return &Census{kind: k} }

// Begin counts the objects of others. No command may be running.
func (c *Census) Begin() {
	all, err := c.kind.All(mostOfOthers * c.kind.Countable)
	o := others{all, all}
	switch {
	case err != nil:
		o = others{}
	case all > c.kind.Countable:
		o.hidden = 0
	case all > c.kind.Most:
		if shown, whole := c.shown(all); whole {
			o.hidden = max(all-shown, 0)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others, c.found, c.since, c.latest = o, false, time.Time{}, nil
	c.begun++
}

// Found reports whether there is overuse with an unknown owner: then all running commands must be
// stopped, and Begin be called.
func (c *Census) Found() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Doubts reports whether there are too many hidden objects, which become overuse with an unknown owner
// unless a command turns out to have them, or they end: commands should be looked at soon.
func (c *Census) Doubts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.since.IsZero()
}

// Look judges the command whose processes pids returns. It uses a count that began at most age ago,
// or earlier if counts take long. It finds nothing if ctx ends, or if it takes too long.
func (c *Census) Look(ctx context.Context, pids func() []int, age time.Duration) Verdict {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	t := c.tally(age)
	all, ok := t.all.get(ctx, func() total { return c.all(t) })
	if ok && all.err == nil && all.n > c.kind.Most && all.n-t.others.all <= c.kind.Countable {
		if n, certain := c.own(ctx, pids); n > c.kind.Most && certain {
			return Guilty
		} else if n > c.kind.Most {
			return Suspect
		}
	}
	if !ok {
		return Innocent
	}
	if found, _ := t.found.get(ctx, func() bool { return c.find(t, all) }); found {
		return Unknown
	}
	return Innocent
}

// own counts what the processes show. By the time that it looks at one, that may have ended, and another
// command's may have its number: if there seem to be too many, it looks again at those that are still
// there.
func (c *Census) own(ctx context.Context, pids func() []int) (n int, certain bool) {
	c.lookBegins()
	defer func() { c.lookEnds(n > c.kind.Most) }()
	looked := pids()
	for range 2 {
		if n, certain = c.kind.Of(ctx, looked, c.kind.Most+1); n <= c.kind.Most {
			break
		}
		now := slices.Sorted(slices.Values(pids()))
		left := slices.DeleteFunc(slices.Clone(looked), func(pid int) bool {
			_, there := slices.BinarySearch(now, pid)
			return !there
		})
		if len(left) == len(looked) {
			return n, certain
		}
		looked, certain = left, false
	}
	return n, certain
}

// tally returns the latest count, and begins one if that is older than age. A count that hangs
// holds up only the commands of its time, unless too many do.
func (c *Census) tally(age time.Duration) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.latest != nil && (now.Sub(c.began) < age || now.Before(c.rests) || c.counts >= mostCounts) {
		return c.latest
	}
	c.began, c.latest = now, &tally{others: c.others, begun: c.begun}
	return c.latest
}

// counting says that a count begins (1) or ends (-1).
func (c *Census) counting(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts += n
}

// lookBegins says that a look at a command begins.
func (c *Census) lookBegins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
}

// lookEnds says that a look at a command has ended. One that has too many is stopped: hidden ones may
// be those that it leaves.
func (c *Census) lookEnds(tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks--; tooMany && !c.since.IsZero() {
		c.since = time.Now()
	}
}

// all counts all objects.
func (c *Census) all(t *tally) total {
	c.counting(1)
	defer c.counting(-1)
	began := time.Now()
	n, err := c.kind.All(t.others.all + 2*c.kind.Countable)
	return total{n, time.Since(began), err}
}

// find reports whether there is overuse with an unknown owner.
func (c *Census) find(t *tally, all total) bool {
	c.counting(1)
	defer c.counting(-1)
	if all.err != nil {
		return c.Found()
	}
	began := time.Now()
	hidden, looked, err := c.hidden(all.n, t.others)
	counted := all.took + time.Since(began) - looked
	return c.judge(t, others{all.n, hidden}, err, share*counted+min(share*looked, longestRest))
}

// hidden returns how many of all objects no process shows. Objects that disappear meanwhile are not
// hidden: the shown ones are counted between two counts of all. If counting takes too long, the
// number of hidden objects is at most the earlier one: otherwise a process that makes counting slow
// could get others blamed. looked is the duration.
func (c *Census) hidden(all int, o others) (n int, looked time.Duration, err error) {
	switch {
	case all <= c.kind.Most || all-o.all > c.kind.Countable:
		return all, 0, nil
	case o.all > c.kind.Countable: // others have too many to look at
		return max(all-o.all, 0), 0, nil
	}
	began := time.Now()
	shown, whole := c.shown(all)
	if looked = time.Since(began); !whole {
		return o.hidden, looked, nil
	}
	again, err := c.kind.All(o.all + 2*c.kind.Countable)
	return max(min(all, again)-shown, 0), looked, err
}

// shown counts the objects that any process shows. whole: there was time to look at all processes.
func (c *Census) shown(all int) (n int, whole bool) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	n = c.kind.Shown(ctx, all)
	return n, ctx.Err() == nil
}

// judge reports whether there is overuse with an unknown owner, after a count. The next one may
// come after a rest. All have the objects now. A count from before Begin says nothing.
func (c *Census) judge(t *tally, now others, err error, rest time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.begun != c.begun {
		return false
	}
	at, before := time.Now(), t.others
	if err != nil {
		c.rests = at.Add(rest)
		return c.found
	}
	switch n := now.hidden - before.hidden; {
	case n <= c.kind.Most:
		c.since = time.Time{}
	case c.since.IsZero() || n < c.peak-c.peak/falls:
		c.since, c.peak = at, n
	case at.Sub(c.since) >= patience && c.looks == 0, at.Sub(c.since) >= patience+longest:
		c.found = true
	}
	c.found = c.found || now.all-before.all > c.kind.Countable
	if now.all > c.kind.Most && c.since.IsZero() && now.all-c.last <= c.kind.Most/falls {
		c.rests = at.Add(rest)
	}
	c.last = now.all
	c.others = others{min(c.others.all, now.all), min(c.others.hidden, now.hidden)}
	return c.found
}
