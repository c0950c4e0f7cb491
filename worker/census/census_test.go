package census

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A machine has a number of objects: all, those that its processes show, and those of one command.
type machine struct {
	all, shown, own int
	unsure          bool
	err             error
	counts, asked   int // how often all objects, and those of the command, were counted
	looked          int // how often those that are shown were
}

func (m *machine) census() *Census {
	return New(Kind{
		Most: 100, Countable: 1000,
		All:   func(most int) (int, error) { m.counts++; return min(m.all, most), m.err },
		Of:    func(context.Context, []int, int) (int, bool) { m.asked++; return m.own, !m.unsure },
		Shown: func(context.Context, int) int { m.looked++; return m.shown },
	})
}

// look is Look for a command whose processes do not matter.
func (c *Census) look(t *testing.T, age time.Duration) Verdict {
	return c.Look(t.Context(), func() []int { return nil }, age)
}

// TestVerdicts looks at a command again and again for three seconds.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		before, now machine
		first, last Verdict
	}{
		"few":                           {machine{}, machine{all: 100, own: 100}, Innocent, Innocent},
		"many of its own":               {machine{}, machine{all: 101, shown: 101, own: 101}, Guilty, Guilty},
		"those of others went":          {machine{all: 90}, machine{all: 101, shown: 101, own: 101}, Guilty, Guilty},
		"as many as it may have":        {machine{}, machine{all: 200, shown: 200, own: 100}, Innocent, Innocent},
		"perhaps its own":               {machine{}, machine{all: 150, shown: 101, own: 101, unsure: true}, Suspect, Suspect},
		"another command shows them":    {machine{}, machine{all: 900, shown: 890}, Innocent, Innocent},
		"nobody shows them":             {machine{}, machine{all: 900, shown: 799}, Innocent, Unknown},
		"few are hidden":                {machine{}, machine{all: 900, shown: 800}, Innocent, Innocent},
		"they were hidden before":       {machine{all: 500, shown: 10}, machine{all: 600, shown: 10}, Innocent, Innocent},
		"more are hidden than before":   {machine{all: 500, shown: 10}, machine{all: 601, shown: 10}, Innocent, Unknown},
		"those before were shown":       {machine{all: 500, shown: 500}, machine{all: 601, shown: 500}, Innocent, Unknown},
		"nobody knows those before":     {machine{all: 500, err: errors.New("no")}, machine{all: 500}, Innocent, Unknown},
		"too many to look at":           {machine{}, machine{all: 1001, shown: 1001, own: 1001}, Unknown, Unknown},
		"others have too many":          {machine{all: 5000, shown: 5000}, machine{all: 5100}, Innocent, Innocent},
		"others have, and it has many":  {machine{all: 5000, shown: 5000}, machine{all: 5101, own: 101}, Guilty, Guilty},
		"others have, some are hidden":  {machine{all: 5000, shown: 5000}, machine{all: 5101}, Innocent, Unknown},
		"others have, too many to look": {machine{all: 5000, shown: 5000}, machine{all: 6001, own: 1001}, Unknown, Unknown},
		"they cannot be counted":        {machine{}, machine{all: 900, own: 900, err: errors.New("no")}, Innocent, Innocent},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := c.before
			census := m.census()
			census.Begin()
			if m.all > 1000 && m.looked > 0 {
				t.Errorf("%s: %d objects were looked at before", name, m.all)
			}
			m = c.now
			first := census.look(t, time.Second)
			var last Verdict
			for range 3 {
				time.Sleep(time.Second + 1)
				last = census.look(t, time.Second)
			}
			if first != c.first || last != c.last {
				t.Errorf("%s: %d at first and %d at last, want %d and %d", name, first, last, c.first, c.last)
			}
			if tooMany := m.all > 1000+c.before.all; tooMany && m.asked > 0 {
				t.Errorf("%s: the command's own were counted although they are too many", name)
			}
			if c.before.all > 1000 && m.looked > 0 {
				t.Errorf("%s: %d objects were looked at", name, m.all)
			}
		})
	}
}

// TestOthersHaveFewerLater: if others had objects once and have fewer later, commands may not use
// the difference.
func TestOthersHaveFewerLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{all: 500}
		c := m.census()
		c.Begin()
		for _, step := range []struct {
			all  int
			want Verdict
		}{{500, Innocent}, {300, Innocent}, {401, Innocent}, {401, Innocent}, {401, Unknown}} {
			m.all = step.all
			time.Sleep(time.Second + 1)
			if got := c.look(t, time.Second); got != step.want {
				t.Fatalf("%d objects: %d, want %d", step.all, got, step.want)
			}
		}
	})
	// Of very many, too.
	m := &machine{all: 5000}
	c := m.census()
	c.Begin()
	for _, step := range []struct {
		all  int
		want Verdict
	}{{300, Innocent}, {1300, Innocent}, {1301, Unknown}} {
		m.all, m.shown = step.all, step.all
		if got := c.look(t, 0); got != step.want {
			t.Errorf("%d objects after more: %d, want %d", step.all, got, step.want)
		}
	}
}

// TestFreeing: while the kernel frees objects, no command is blamed. Overuse that was found before
// remains until others' objects are counted again.
func TestFreeing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := m.census()
		c.Begin()
		look := func() Verdict {
			time.Sleep(time.Second + 1)
			return c.look(t, time.Second)
		}
		for m.all = 900; m.all > 110; m.all -= m.all/falls + 2 {
			if got := look(); got != Innocent {
				t.Fatalf("%d objects are left: %d", m.all, got)
			}
		}
		m.all = 0
		look()
		m.all = 900
		for range 2 {
			if got := look(); got != Innocent || c.Found() {
				t.Fatalf("hidden objects for less than %s: %d", patience, got)
			}
		}
		if got := look(); got != Unknown || !c.Found() {
			t.Fatalf("hidden objects: %d, found: %v", got, c.Found())
		}
		m.all = 0
		if got := look(); got != Unknown {
			t.Errorf("the owner was found, and was not stopped: %d", got)
		}
		c.Begin()
		if got := look(); got != Innocent || c.Found() {
			t.Errorf("after a new beginning: %d, found: %v", got, c.Found())
		}
	})
}

// TestEndMeanwhile: objects that go while those that are shown are counted are not hidden.
func TestEndMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := m.census()
		c.Begin()
		c.kind.Shown = func(context.Context, int) int { m.all = 10; return 10 }
		for range 4 {
			m.all = 900
			if got := c.look(t, time.Second); got != Innocent {
				t.Errorf("%d, want %d", got, Innocent)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestCounts: commands that ask at the same time share a count. A count that hangs delays only the
// commands of its own second. Slow counts are rare if there are many objects and their number does
// not keep growing.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := m.census()
		c.Begin()
		m.counts = 0
		hangs := make(chan struct{})
		all := c.kind.All
		c.kind.All = func(most int) (int, error) {
			n, err := all(most)
			if m.counts == 1 {
				<-hangs
			}
			return n, err
		}
		ended := make(chan Verdict, 1)
		go func() { ended <- c.look(t, time.Second) }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		c.look(t, time.Second)
		c.look(t, time.Second)
		if m.counts != 2 || len(ended) > 0 {
			t.Errorf("%d counts, %d hung ones ended; want 2, and none", m.counts, len(ended))
		}
		close(hangs)
		<-ended
		c.kind.All = func(most int) (int, error) {
			time.Sleep(time.Second)
			return all(most)
		}
		m.counts = 0
		for i, step := range []struct {
			wait        time.Duration
			all, counts int // each looks at all twice if there are many
		}{
			{time.Minute, 100, 1},
			{time.Second, 100, 2},
			{time.Second, 500, 4},
			{time.Second, 512, 6}, // they had become more
			{39 * time.Second, 512, 6},
			{2 * time.Second, 512, 8},
		} {
			m.all, m.shown = step.all, step.all
			time.Sleep(step.wait)
			if c.look(t, time.Second); m.counts != step.counts {
				t.Errorf("step %d: %d counts, want %d", i, m.counts, step.counts)
			}
		}
		// Hidden ones are followed.
		time.Sleep(time.Minute)
		for i := range 3 {
			m.counts, m.shown = 0, 0
			if c.look(t, time.Second); m.counts != 2 && !c.Found() {
				t.Errorf("%d counts in look %d for hidden objects", m.counts, i)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestLongLooks has a command whose processes take very long to look at.
func TestLongLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := m.census()
		c.Begin()
		m.all = 900
		c.kind.Shown = func(ctx context.Context, _ int) int { <-ctx.Done(); return 0 }
		for range 10 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if got := c.Look(ctx, func() []int { return nil }, time.Second); got != Innocent || time.Since(began) > time.Millisecond {
				t.Fatalf("another command, which has ended: %d after %s", got, time.Since(began))
			}
			cancel()
			time.Sleep(time.Second + 1)
			if got := c.look(t, time.Second); got != Innocent || c.Found() {
				t.Fatalf("another command: %d, found: %v", got, c.Found())
			}
			time.Sleep(longestRest)
		}
		c.kind.Of = func(ctx context.Context, _ []int, _ int) (int, bool) { <-ctx.Done(); return 0, false }
		if got := c.look(t, time.Second); got != Innocent {
			t.Errorf("its own look: %d", got)
		}
		// Growth during a count is noticed soon.
		m.all = 1001
		time.Sleep(longest + longestRest)
		if got := c.look(t, time.Second); got != Unknown {
			t.Errorf("too many objects, after a long look: %d", got)
		}
	})
}

// TestSlowLook: nobody is stopped for hidden objects while a look at their owner takes its time, but
// one that does not end holds up nothing for ever.
func TestSlowLook(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  Verdict
	}{
		"slow":  {patience + time.Second, Guilty},
		"hangs": {time.Hour, Innocent},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{all: 900}
			census := m.census()
			census.kind.Of = func(_ context.Context, pids []int, _ int) (int, bool) {
				if len(pids) > 0 {
					time.Sleep(c.takes)
				}
				return 900 * len(pids), true
			}
			m.all = 0
			census.Begin()
			m.all = 900
			verdict := make(chan Verdict, 1)
			go func() {
				got := census.Look(t.Context(), func() []int { return []int{1} }, time.Second)
				verdict <- got
			}()
			var found time.Duration
			for began := time.Now(); found == 0 && time.Since(began) < time.Minute; time.Sleep(time.Second + 1) {
				if census.look(t, time.Second) == Unknown {
					found = time.Since(began)
				}
				if c.want == Guilty && time.Since(began) > c.takes+time.Second {
					break // the kernel has freed what it left
				}
			}
			if found != 0 != (c.want != Guilty) || found > patience+longest+3*time.Second {
				t.Errorf("%s: overuse of nobody after %s", name, found)
			}
			if got := <-verdict; c.want == Guilty && got != Guilty {
				t.Errorf("%s: the owner is judged %d", name, got)
			}
		})
	}
}

// TestHungCounts: few hang at a time, none accuses commands that began after a new beginning, and
// the processes of a command are asked for only when they are looked at.
func TestHungCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := m.census()
		c.Begin()
		m.all = 2000
		hangs, hung := make(chan struct{}), atomic.Int64{}
		all := c.kind.All
		c.kind.All = func(int) (int, error) { hung.Add(1); <-hangs; return 0, nil }
		for range 10 {
			time.Sleep(time.Second + 1)
			if got := c.look(t, time.Second); got != Innocent {
				t.Fatalf("nothing is known: %d", got)
			}
		}
		if hung.Load() != mostCounts {
			t.Errorf("%d counts hang, want %d", hung.Load(), mostCounts)
		}
		old := c.tally(time.Hour)
		c.kind.All = all
		c.Begin()
		if c.judge(old, others{all: 5000, hidden: 5000}, nil, 0) || c.Found() {
			t.Error("a count from before the beginning finds something")
		}
		close(hangs)
		synctest.Wait()
		m.all = 2000 + 101
		order := ""
		c.kind.All = func(most int) (int, error) { order += "all "; return all(most) }
		c.kind.Of = func(context.Context, []int, int) (int, bool) { order += "of "; return 101, true }
		got := c.Look(t.Context(), func() []int { order += "pids "; return nil }, time.Second)
		if got != Guilty || order != "all pids of pids " {
			t.Errorf("%d after %q", got, order)
		}
	})
}

// TestReusedPids: a command has nothing of what a process shows that is not its own any more.
func TestReusedPids(t *testing.T) {
	const owner = 7
	for name, c := range map[string]struct {
		pids [][]int // at each call, and at all later ones
		want Verdict
	}{
		"they stay":                       {[][]int{{1, owner}}, Guilty},
		"new ones":                        {[][]int{{owner}, {owner, 1}}, Guilty},
		"another one ends":                {[][]int{{1, owner}, {owner}}, Guilty},
		"it is not the command's":         {[][]int{{1, owner}, {1}}, Innocent},
		"others end during each look":     {[][]int{{1, 2, owner}, {2, owner}, {owner}}, Suspect},
		"all have ended since they began": {[][]int{{owner}, {}}, Innocent},
	} {
		synctest.Test(t, func(t *testing.T) {
			census := New(Kind{
				Most: 100, Countable: 1000,
				All: func(int) (int, error) { return 500, nil },
				Of: func(_ context.Context, pids []int, _ int) (int, bool) {
					if slices.Contains(pids, owner) {
						return 500, true
					}
					return 0, true
				},
				Shown: func(context.Context, int) int { return 500 },
			})
			pids := func() []int {
				now := c.pids[0]
				c.pids = slices.Delete(c.pids, 0, min(1, len(c.pids)-1))
				return now
			}
			if got := census.Look(t.Context(), pids, time.Second); got != c.want {
				t.Errorf("%s: verdict %d, want %d", name, got, c.want)
			}
		})
	}
}
