package preemption

import (
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// manyPools is how many queues a cohort has here.
const manyPools = 1000

// A mall is a cohort of many pools, with their trees, and how often these asked for grades.
type mall struct {
	*Cohort
	queues []*Queue
	trees  []*fair.Tree
	asked  int
}

// newMall has a task of each of two instances wait in every pool, and one of "few" in the first.
func newMall(quotas map[string]quota.Quota) *mall {
	m := &mall{Cohort: New(
		quota.Cohort{Name: "farm", Unit: quota.Slots}, &timer.Clock{Now: time.Unix(1e9, 0)},
		Options{Delay: time.Hour, Grace: time.Minute, Limit: 1},
	)}
	for instance, q := range quotas {
		m.Set(instance, q)
	}
	for i := range manyPools {
		m.queues = append(m.queues, m.Queue(1, i))
		m.trees = append(m.trees, fair.New(fair.Options{
			Levels:  make([]fair.Level, 1),
			Admit:   func(kind uint32, key string) fair.Grade { m.asked++; return m.Grade(kind, key) },
			Changes: m.Changes(),
		}))
		for _, instance := range []string{"many", "few", "others"} {
			if instance != "few" || i == 0 {
				m.queues[i].Enter(NewShare(nil, instance))
				it := &fair.Item{Owner: instance}
				m.trees[i].Attach(&fair.Entry{}, it, []string{instance}, fair.Rank{})
				m.trees[i].Enqueue(it, 1, false)
			}
		}
	}
	return m
}

// next is the instance that is next in the first tree, and how often all trees ask for grades then.
func (m *mall) next() (instance any, asked int) {
	m.asked = 0
	if it := m.trees[0].Next(&fair.Worker{Kind: 1}, m.Now); it != nil {
		instance = it.Owner
	}
	return instance, m.asked
}

// due has the lines do what is due, and counts the tasks that must yield from now on.
func (m *mall) due() (marked int) {
	for x := m.Timers.PopDue(m.Now); x != nil; x = m.Timers.PopDue(m.Now) {
		marked += x.Owner.(*Line).Ripen(1)
	}
	return marked
}

// resting counts the lines whose timer is not set.
func (m *mall) resting() (n int) {
	for _, p := range m.parties {
		for _, t := range p.tiers {
			n += t.resting.Len()
		}
	}
	return n
}

// TestStartsInManyPools starts and ends tasks in a cohort of many pools. The cost must not depend
// on the number of pools, even if the instance may run more or less in all of them afterwards.
func TestStartsInManyPools(t *testing.T) {
	for name, c := range map[string]struct {
		instance string
		quota    quota.Quota
		// running is the expected next item after a start, ended after an end. The other instance
		// with tasks in each pool is always at its maximum.
		running, ended any
	}{
		"no quota":                 {"many", quota.Quota{}, "many", "many"},
		"far from its maximum":     {"many", quota.Quota{Max: 5}, "many", "many"},
		"above its minimum":        {"many", quota.Quota{Min: 1}, "many", "many"},
		"below its minimum":        {"many", quota.Quota{Min: 9}, "many", "many"},
		"reaches its minimum":      {"many", quota.Quota{Min: 3}, "many", "many"},
		"reaches its maximum":      {"many", quota.Quota{Max: 3}, "few", "many"},
		"reaches both":             {"many", quota.Quota{Min: 3, Max: 3}, "few", "many"},
		"few reaches its maximum":  {"few", quota.Quota{Max: 3}, "many", "many"},
		"few reaches its minimum":  {"few", quota.Quota{Min: 3}, "many", "few"},
		"few reaches both of them": {"few", quota.Quota{Min: 3, Max: 3}, "many", "few"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMall(map[string]quota.Quota{c.instance: c.quota, "others": {Max: 2}})
			for _, instance := range []string{c.instance, "others"} {
				for range 2 { // the next one is the third
					m.queues[1].Charge(NewShare(nil, instance), Run{})
				}
			}
			m.next()
			resting := m.resting()
			for range 3 {
				one := NewShare(nil, c.instance)
				m.queues[0].Charge(one, Run{})
				started, atStart := m.next()
				one.Discharge()
				ended, atEnd := m.next()
				if started != c.running || ended != c.ended {
					t.Errorf("next is %v after a start, %v after its end", started, ended)
				}
				if n := m.resting(); n != resting || atStart > 1 || atEnd > 1 {
					t.Errorf("grades are asked for %d times at a start, %d at its end; %d timers have changed",
						atStart, atEnd, resting-n)
				}
			}
		})
	}
}

// TestStirredOnce has an instance that waits in many pools have room for one more, while a worker
// is idle in each: one line is looked at, the next time the next one, and all of them at last.
func TestStirredOnce(t *testing.T) {
	m := newMall(map[string]quota.Quota{"many": {Max: 1}})
	for m.Stirred() != nil {
		t.Fatal("a line is looked at that has no idle workers")
	}
	for _, q := range m.queues {
		q.Expose()
	}
	one := NewShare(nil, "many")
	m.queues[0].Charge(one, Run{})
	seen := map[any]bool{}
	for range manyPools {
		one.Discharge()
		looks := 0
		for l := m.Stirred(); l != nil; l = m.Stirred() {
			looks++
			one = NewShare(nil, "many")
			l.Queue().Charge(one, Run{})
			l.Seen(0, true)
			seen[l.Queue().Owner] = true
		}
		if looks != 1 {
			t.Fatalf("%d lines were looked at for one start", looks)
		}
	}
	if len(seen) != manyPools {
		t.Errorf("%d pools had a turn, want all", len(seen))
	}
	m.Set("many", quota.Quota{})
	looks := 0
	for l := m.Stirred(); l != nil; l = m.Stirred() {
		looks++
		l.Seen(0, looks%2 == 0)
	}
	if looks != manyPools {
		t.Errorf("without a maximum %d lines were looked at", looks)
	}
	m.Set("many", quota.Quota{Max: manyPools})
	for l := m.Stirred(); l != nil; l = m.Stirred() {
		looks++
		l.Seen(0, true)
	}
	if looks != manyPools+manyPools/2 {
		t.Errorf("%d lines were looked at, half of them had nobody idle", looks)
	}
}

// TestMinimumOfManyPools brings an instance below its minimum, and above it again, with tasks in
// many pools. Their timers must be set once. When they are due and the instance is above its
// minimum, no run may be stopped.
func TestMinimumOfManyPools(t *testing.T) {
	m := newMall(map[string]quota.Quota{"many": {Min: 1}})
	if n := m.Timers.Len(); n != manyPools {
		t.Fatalf("%d timers are set, want one for each pool", n)
	}
	other := NewShare(nil, "others")
	m.queues[3].Charge(other, Run{})
	one := NewShare(nil, "many")
	m.Now = m.Now.Add(time.Minute)
	m.queues[0].Charge(one, Run{})
	if m.Now = m.Now.Add(time.Hour); m.due() != 0 || m.Timers.Len() != 0 {
		t.Fatal("others must yield for an instance that has its minimum")
	}
	one.Discharge()
	if n := m.Timers.Len(); n != manyPools || m.due() != 0 {
		t.Fatalf("%d timers are set below the minimum, and some are due", n)
	}
	m.Now = m.Now.Add(time.Hour - 1)
	if m.due() != 0 {
		t.Error("others must yield too early")
	}
	if m.Now = m.Now.Add(1); m.due() != 1 || other.Claim().Instance() != "many" {
		t.Error("others need not yield")
	}
	if n := m.Timers.Len(); n > manyPools/2 {
		t.Errorf("%d timers are set although the one that is missing is promised", n)
	}
}

// TestOneMoreIsMissing has an instance that is below its minimum, with tasks in many pools, lose a
// run after others were told to yield for the rest. One more must yield, in the only pool where one
// can.
func TestOneMoreIsMissing(t *testing.T) {
	m := newMall(map[string]quota.Quota{"many": {Min: 2}})
	one, first, second := NewShare(nil, "many"), NewShare(nil, "others"), NewShare(nil, "others")
	m.queues[0].Charge(one, Run{})
	m.queues[3].Charge(first, Run{})
	m.Now = m.Now.Add(time.Hour)
	if m.due() != 1 || first.Claim() == nil {
		t.Fatal("others need not yield for the one that is missing")
	}
	m.queues[manyPools/2].Charge(second, Run{})
	if m.due() != 0 {
		t.Fatal("more must yield than are missing")
	}
	one.Discharge()
	if m.due() != 1 || second.Claim() == nil {
		t.Error("others need not yield for a second one")
	}
}

// leave has the first task of "many" in a pool leave it.
func (m *mall) leave(pool int) {
	first, _ := m.queues[pool].lines["many"].tasks.Front()
	first.Leave()
}

// TestTurnPasses has an instance below its minimum that waits in many pools. The line whose turn it
// is stops no run, because its tasks are gone or came late. The turn must pass to the next line.
func TestTurnPasses(t *testing.T) {
	for name, c := range map[string]struct {
		// tasks is how many tasks of "many" wait in the first pool.
		tasks int
		// happens makes one more slot missing than runs are stopped for; the first pool must stop a
		// run.
		happens func(m *mall, one, first *Share)
	}{
		"the task for which another one yields is gone": {1, func(m *mall, _, first *Share) {
			m.leave(0)
			first.IsPreempted()
		}},
		"the next line is gone": {1, func(m *mall, one, _ *Share) {
			one.Discharge()
			m.leave(1)
		}},
		"tasks of the next line came late": {1, func(m *mall, one, _ *Share) {
			m.queues[1].Enter(NewShare(nil, "many"))
			m.leave(1)
			m.due()
			m.queues[2].Enter(NewShare(nil, "many"))
			m.due() // the line with second rests behind that of the task that came late
			one.Discharge()
		}},
		"all tasks of the next line are gone": {2, func(m *mall, one, _ *Share) {
			one.Discharge()
			m.leave(0)
			m.leave(0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMall(map[string]quota.Quota{"many": {Min: 2}})
			for range c.tasks - 1 {
				m.queues[0].Enter(NewShare(nil, "many"))
			}
			one, first, second := NewShare(nil, "many"), NewShare(nil, "others"), NewShare(nil, "others")
			m.queues[0].Charge(one, Run{})
			m.queues[0].Charge(first, Run{})
			m.queues[2].Charge(second, Run{})
			m.Now = m.Now.Add(time.Hour)
			if m.due() != 1 || first.Claim() == nil {
				t.Fatal("others need not yield for the one that is missing")
			}
			c.happens(m, one, first)
			if m.due() != 1 || second.Claim() == nil {
				t.Error("nobody yields to the next line")
			}
		})
	}
}

// TestTurnPassesToLargerClass has the tasks of an instance below its minimum, for which others
// yielded, be gone. Others must yield to its tasks on workers of a larger size class.
func TestTurnPassesToLargerClass(t *testing.T) {
	c := New(
		quota.Cohort{Name: "farm", Unit: quota.SizeClasses}, &timer.Clock{Now: time.Unix(1e9, 0)},
		Options{Delay: time.Hour, Grace: time.Minute, Limit: 1},
	)
	c.Set("short", quota.Quota{Min: 1})
	var waiting, running []*Share
	for i, q := range []*Queue{c.Queue(1, nil), c.Queue(4, nil)} {
		waiting = append(waiting, NewShare(nil, "short"))
		q.Enter(waiting[i])
		running = append(running, NewShare(nil, "others"))
		q.Charge(running[i], Run{})
	}
	m := &mall{Cohort: c}
	c.Now = c.Now.Add(time.Hour)
	if m.due() != 1 || running[0].Claim() == nil {
		t.Fatal("others need not yield on the smaller class")
	}
	waiting[0].Leave()
	if running[0].IsPreempted() || m.due() != 1 || running[1].Claim() == nil {
		t.Error("others need not yield on the larger class")
	}
}
