package census

import (
	"sync"
	"time"
)

const (
	// patience is how long there have to be too many hidden objects: those of a process that ends
	// are hidden until the kernel has freed them.
	patience = 2 * time.Second
	// falls: the kernel is freeing hidden objects if one in so many has gone.
	falls = 8
	// share bounds the time that counts of many objects take: one part in so many, unless there are
	// more and more.
	share = 20
	// mostOfOthers is how many times Kind.Countable others may have.
	mostOfOthers = 16
)

// A Kind is a kind of objects. Its functions may be called concurrently.
type Kind struct {
	// Most is how many objects a command may have.
	Most int
	// Countable is how many objects can be attributed: to look at more takes too much memory or
	// time.
	Countable int
	// All counts the objects of the machine, up to most or some more. It may return 0 if there are
	// at most Kind.Most.
	All func(most int) (int, error)
	// Of counts those that processes show, up to most or some more. It is not certain if objects
	// may have counted twice.
	Of func(pids []int, most int) (n int, certain bool)
	// Shown counts those that any process shows, of the first all.
	Shown func(all int) int
}

// A Verdict is what a Census finds out about a command.
type Verdict int

// The verdicts.
const (
	Innocent Verdict = iota // or there are too few objects for a question
	Suspect                 // the command may have too many
	Guilty                  // the command has too many for certain
	Unknown                 // somebody has too many, and the owner cannot be found
)

// A Census counts objects of one kind for all commands of a worker.
type Census struct {
	kind Kind

	mu     sync.Mutex
	latest *tally    // guarded by mu, as all below
	began  time.Time // when that began
	rests  time.Time // when the next count may begin
	last   int       // objects in all
	others others
	// since is when there came to be too many hidden objects, and peak how many there were; zero:
	// there are not.
	since time.Time
	peak  int
	found bool // an excess with an unknown owner; until Begin
}

// others are the objects when no command ran, or fewer that were seen later: in all, and those of
// them that no process showed.
type others struct{ all, hidden int }

// A tally is one count for all commands that look at the time. Its functions count once, and return
// when that has ended.
type tally struct {
	others others              // when it began
	all    func() (int, error) // counts all objects
	found  func() bool         // counts the hidden ones, too, and reports whether there is an excess with an unknown owner
}

// New returns a Census of a kind. Begin has to be called before the first command begins.
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
		o.hidden = max(all-c.kind.Shown(all), 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others, c.found, c.since, c.latest = o, false, time.Time{}, nil
}

// Found reports whether there is an excess with an unknown owner: all commands that run have to be
// stopped, and then Begin has to be called.
func (c *Census) Found() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Look judges the command that has the processes pids. It uses a count that began at most age ago,
// or earlier if counts take long.
func (c *Census) Look(pids []int, age time.Duration) Verdict {
	t := c.tally(age)
	if all, err := t.all(); err == nil && all > c.kind.Most && all-t.others.all <= c.kind.Countable {
		if n, certain := c.kind.Of(pids, c.kind.Most+1); n > c.kind.Most && certain {
			return Guilty
		} else if n > c.kind.Most {
			return Suspect
		}
	}
	if t.found() {
		return Unknown
	}
	return Innocent
}

// tally returns the latest count, and begins one if that is older than age. A count that hangs
// holds up only the commands of its time.
func (c *Census) tally(age time.Duration) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.latest != nil && (now.Sub(c.began) < age || now.Before(c.rests)) {
		return c.latest
	}
	var spent time.Duration
	t := &tally{others: c.others}
	t.all = sync.OnceValues(func() (int, error) {
		began := time.Now()
		n, err := c.kind.All(t.others.all + 2*c.kind.Countable)
		spent = time.Since(began)
		return n, err
	})
	t.found = sync.OnceValue(func() bool {
		all, err := t.all()
		if err != nil {
			return c.Found()
		}
		began := time.Now()
		hidden, err := c.hidden(all, t.others)
		return c.judge(t.others, others{all, hidden}, err, spent+time.Since(began))
	})
	c.began, c.latest = now, t
	return t
}

// hidden returns how many of all objects no process shows. What ends meanwhile is not hidden: the
// shown ones are counted between two counts of all.
func (c *Census) hidden(all int, o others) (int, error) {
	switch {
	case all <= c.kind.Most || all-o.all > c.kind.Countable:
		return all, nil
	case o.all > c.kind.Countable: // others have too many to look at
		return max(all-o.all, 0), nil
	}
	shown := c.kind.Shown(all)
	again, err := c.kind.All(o.all + 2*c.kind.Countable)
	return max(min(all, again)-shown, 0), err
}

// judge reports whether there is an excess with an unknown owner, after a count that took some
// time: others had the objects before, and now all have others.
func (c *Census) judge(before, now others, err error, took time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	if err != nil {
		c.rests = at.Add(share * took)
		return c.found
	}
	switch n := now.hidden - before.hidden; {
	case n <= c.kind.Most:
		c.since = time.Time{}
	case c.since.IsZero() || n < c.peak-c.peak/falls:
		c.since, c.peak = at, n
	case at.Sub(c.since) >= patience:
		c.found = true
	}
	c.found = c.found || now.all-before.all > c.kind.Countable
	if now.all > c.kind.Most && c.since.IsZero() && now.all-c.last <= c.kind.Most/falls {
		c.rests = at.Add(share * took)
	}
	c.last = now.all
	c.others = others{min(c.others.all, now.all), min(c.others.hidden, now.hidden)}
	return c.found
}
