package quota

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run returns a run that began age seconds ago.
func run(instance string, kind any, cost int64, age int) *Run {
	return &Run{Instance: instance, Kind: kind, Cost: cost, Started: epoch.Add(-time.Duration(age) * time.Second)}
}

func start(l *Ledger, runs ...*Run) []*Run {
	for _, r := range runs {
		l.Start(r)
	}
	return runs
}

func TestStanding(t *testing.T) {
	l := NewLedger(1)
	l.Set("a", Quota{Min: 2, Max: 5})
	for used, want := range []Standing{BelowMin, BelowMin, Between, Between, Between, AtMax} {
		if got := l.Standing("a", 1); got != want {
			t.Errorf("%d used: %d, want %d", used, got, want)
		}
		if big := l.Standing("a", 4); (big == AtMax) != (used > 1) {
			t.Errorf("%d used: one of 4 is at %d", used, big)
		}
		l.Start(run("a", "x", 1, 0))
	}
	if l.Standing("stranger", 100) != Between {
		t.Error("one without a quota has limits")
	}
}

func TestMissing(t *testing.T) {
	l := NewLedger(1)
	l.Set("a", Quota{Min: 7, Max: 8})
	start(l, run("a", "x", 1, 0))
	if ones, fours := l.Missing("a", 1), l.Missing("a", 4); ones != 6 || fours != 1 {
		t.Errorf("%d of 1 and %d of 4 are missing, want 6 and 1: two of 4 are too many", ones, fours)
	}
	start(l, run("b", "x", 2, 0))
	l.MarkFor(l.Victim("x"), "a")
	if n := l.Missing("a", 1); n != 4 {
		t.Errorf("%d are missing besides the 2 that are promised", n)
	}
}

func TestQuotasMakeSense(t *testing.T) {
	for _, q := range []Quota{{Min: -1}, {Max: -1}, {Min: 3, Max: 2}, {Min: math.MaxInt64}, {Max: math.MaxInt64}} {
		if q.Validate() == nil {
			t.Errorf("%+v is taken", q)
		}
	}
	for _, q := range []Quota{{}, {Min: 3}, {Max: 3}, {3, 3}} {
		if err := q.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestVictim(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(l *Ledger) (want *Run)
	}{
		{"the instance furthest over its minimum", func(l *Ledger) *Run {
			l.Set("a", Quota{Min: 3})
			start(l, run("a", "x", 1, 1), run("a", "x", 1, 1), run("a", "x", 1, 1), run("a", "x", 1, 1))
			return start(l, run("b", "x", 1, 9), run("b", "x", 1, 8))[1]
		}},
		{"the lowest priority, then the least work lost", func(l *Ledger) *Run {
			low, lost := run("a", "x", 1, 9), run("a", "x", 1, 5)
			low.Priority, lost.Priority = 100, 100
			start(l, run("a", "x", 1, 1), low, lost)
			return lost
		}},
		{"none below its minimum", func(l *Ledger) *Run {
			l.Set("a", Quota{Min: 3})
			start(l, run("a", "x", 2, 1), run("a", "x", 2, 1))
			return nil
		}},
		{"none of another kind", func(l *Ledger) *Run {
			start(l, run("a", "y", 1, 1))
			return nil
		}},
		{"none that is shielded, or stopped too often", func(l *Ledger) *Run {
			shielded, often := run("a", "x", 1, 1), run("a", "x", 1, 1)
			shielded.Shielded, often.Preempted = true, 2
			start(l, shielded, often)
			return start(l, run("a", "x", 1, 99))[0]
		}},
		{"none twice", func(l *Ledger) *Run {
			second := start(l, run("a", "x", 1, 1), run("a", "x", 1, 2))[1]
			l.MarkFor(l.Victim("x"), "z")
			return second
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(2)
			want := test.make(l)
			if got := l.Victim("x"); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestMarkedIsSparedWhenNotNeeded(t *testing.T) {
	l := NewLedger(1)
	l.Set("a", Quota{Min: 1})
	start(l, run("b", "x", 1, 1), run("b", "x", 1, 2))
	victim := l.Victim("x")
	l.MarkFor(victim, "a")
	if !l.Deserved(victim) || l.Missing("a", 1) != 0 {
		t.Error("it is not deserved, or not counted")
	}
	r := start(l, run("a", "x", 1, 0))[0]
	if l.Deserved(victim) {
		t.Error("it is deserved although the instance has got its minimum")
	}
	l.End(r)
	l.Set("b", Quota{Min: 2})
	if l.Deserved(victim) {
		t.Error("its own instance falls below its minimum")
	}
	l.Unmark(victim)
	if l.Missing("a", 1) != 1 {
		t.Error("what was promised is still counted")
	}
}

func TestExcess(t *testing.T) {
	l := NewLedger(1)
	often := run("a", "y", 2, 1)
	often.Preempted = 1
	long := start(l, often, run("a", "x", 1, 5), run("a", "x", 1, 3))[2]
	l.Set("a", Quota{Max: 3})
	first := l.OverMax("a")
	if first != long {
		t.Fatalf("%+v", first)
	}
	l.Mark(first)
	if second := l.OverMax("a"); second != nil {
		t.Errorf("%+v too, with 3 of 3 left", second)
	}
	if !l.Deserved(first) {
		t.Error("it is not deserved")
	}
	l.Set("a", Quota{Max: 1})
	l.Mark(l.OverMax("a"))
	if third := l.OverMax("a"); third != often {
		t.Errorf("%+v: for the own maximum it does not matter how often", third)
	}
}

// A model is a Ledger that remembers all and looks through it.
type model struct {
	quotas map[string]Quota
	runs   []*Run
	// forWho has the marked ones.
	forWho map[*Run]string
}

func (m *model) sums(instance string) (used, marked, promised int64) {
	for _, r := range m.runs {
		who, ok := m.forWho[r]
		if r.Instance == instance {
			used += r.Cost
			if ok {
				marked += r.Cost
			}
		}
		if ok && who == instance {
			promised += r.Cost
		}
	}
	return used, marked, promised
}

func (m *model) standing(instance string, cost int64) Standing {
	used, _, _ := m.sums(instance)
	switch q := m.quotas[instance]; {
	case q.Max > 0 && used+cost > q.Max:
		return AtMax
	case used < q.Min:
		return BelowMin
	}
	return Between
}

// better reports whether a is a better victim than b, as a reference for the Ledger.
func (m *model) better(a, b *Run) bool {
	x, xm, _ := m.sums(a.Instance)
	y, ym, _ := m.sums(b.Instance)
	x, y = x-xm-m.quotas[a.Instance].Min, y-ym-m.quotas[b.Instance].Min
	switch {
	case x != y:
		return x > y
	case a.Instance != b.Instance:
		return a.Instance < b.Instance
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case a.Busy != b.Busy:
		return a.Busy
	}
	return a.Started.After(b.Started)
}

func (m *model) open(r *Run, limit int) bool {
	_, marked := m.forWho[r]
	used, taken, _ := m.sums(r.Instance)
	return !marked && !r.Shielded && r.Preempted < limit && used-taken-r.Cost >= m.quotas[r.Instance].Min
}

// TestLedgerIsTheModel feeds both the same at random and compares all that they say.
func TestLedgerIsTheModel(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		const limit = 2
		l, m := NewLedger(limit), &model{quotas: map[string]Quota{}, forWho: map[*Run]string{}}
		kinds := []int64{1, 2, 5}
		name := func() string { return string(rune('a' + rnd.IntN(5))) }
		for step := range 120 {
			before := map[string]Standing{}
			for i := range 5 {
				for _, c := range kinds {
					n := string(rune('a' + i))
					before[fmt.Sprint(n, c)] = l.Standing(n, c)
				}
			}
			var who string
			changed := true
			switch r := (*Run)(nil); rnd.IntN(6) {
			case 0:
				q := Quota{Min: rnd.Int64N(6)}
				if rnd.IntN(2) == 0 {
					q.Max = q.Min + rnd.Int64N(8)
				}
				who = name()
				m.quotas[who] = q
				l.Set(who, q)
			case 1, 2:
				cost := kinds[rnd.IntN(3)]
				r = run(name(), cost, cost, rnd.IntN(50))
				r.Priority, r.Preempted, r.Shielded, r.Busy = rnd.Int32N(2), rnd.IntN(3), rnd.IntN(5) == 0, rnd.IntN(2) == 0
				who = r.Instance
				changed = l.Start(r)
				m.runs = append(m.runs, r)
			case 3:
				if len(m.runs) == 0 {
					continue
				}
				i := rnd.IntN(len(m.runs))
				r = m.runs[i]
				who = r.Instance
				m.runs = append(m.runs[:i:i], m.runs[i+1:]...)
				delete(m.forWho, r)
				changed = l.End(r)
			case 4:
				if r = l.Victim(kinds[rnd.IntN(3)]); r != nil {
					who = name()
					m.forWho[r] = who
					l.MarkFor(r, who)
				}
			case 5:
				if len(m.runs) > 0 {
					r = m.runs[rnd.IntN(len(m.runs))]
					r.Shielded = !r.Shielded
					l.Fix(r)
					l.Unmark(r)
					delete(m.forWho, r)
				}
			}
			compare(t, l, m, kinds, limit)
			for k, s := range before {
				var cost int64
				fmt.Sscan(k[1:], &cost)
				if now := l.Standing(k[:1], cost); now != s && (!changed || k[:1] != who) {
					t.Fatalf("seed %d step %d: standing of %s went from %d to %d unsaid", seed, step, k, s, now)
				}
			}
		}
		for _, r := range m.runs {
			l.End(r)
		}
		for n := range m.quotas {
			l.Set(n, Quota{})
		}
		if len(l.accounts)+len(l.kinds) > 0 || l.Minimums() != 0 {
			t.Errorf("%d accounts and %d kinds are left of nothing", len(l.accounts), len(l.kinds))
		}
	}
}

func compare(t *testing.T, l *Ledger, m *model, kinds []int64, limit int) {
	t.Helper()
	sum := int64(0)
	for i := range 5 {
		n := string(rune('a' + i))
		used, _, promised := m.sums(n)
		q := m.quotas[n]
		sum += q.Min
		if u := l.Of(n); u.Used != used || u.Quota != q || l.Used()[n] != used {
			t.Fatalf("%s: %+v, want %+v and %d", n, u, q, used)
		}
		for _, c := range kinds {
			if got, want := l.Standing(n, c), m.standing(n, c); got != want {
				t.Fatalf("%s with %d of %+v stands at %d, want %d", n, used, q, got, want)
			}
			missing := int64(0)
			for u := used + promised; u < q.Min && (q.Max == 0 || u+c <= q.Max); u += c {
				missing++
			}
			if got := l.Missing(n, c); got != missing {
				t.Fatalf("%s with %d + %d of %+v misses %d of %d, want %d", n, used, promised, q, got, c, missing)
			}
		}
	}
	if l.Minimums() != sum {
		t.Fatalf("minimums sum up to %d, want %d", l.Minimums(), sum)
	}
	for _, c := range kinds {
		v := l.Victim(c)
		if v != nil && (!m.open(v, limit) || v.Kind != any(c)) {
			t.Fatalf("%+v is no victim", v)
		}
		for _, r := range m.runs {
			if r.Kind == any(c) && l.Open(r) != m.open(r, limit) {
				t.Fatalf("%+v is open: %t", r, l.Open(r))
			}
			if r.Kind == any(c) && m.open(r, limit) && (v == nil || m.better(r, v)) {
				t.Fatalf("%+v is a better victim than %+v", r, v)
			}
		}
	}
	for r := range m.forWho {
		if !r.Marked() {
			t.Fatalf("%+v is not marked", r)
		}
	}
}
