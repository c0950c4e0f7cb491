package core

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A market is a model of a farm of some pools, whose size classes are the stalls, and of moves
// between them. It has lists, and goes through all of them whenever a worker gets an action, and
// after each event.
type market struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	state   *State
	now     time.Time
	next    time.Time
	made    int
	joined  int
	call    uint64
	calls   map[uint64]string
	stalls  []*stall // in the order of their platforms, and of their classes
	sellers map[string]*seller
	// moved counts the jobs that ran in another pool than they waited in, free those of them whose
	// move had no cost, and spilled the jobs that ran on a larger class of their own pool.
	ran, moved, free, spilled int
}

// A stall is the workers with these properties, and of this size class; 0: they have none.
type stall struct {
	has     []string
	class   uint32
	waiting []*job
	typical time.Duration
	begun   bool
	workers int
}

type seller struct {
	at    *stall
	idle  bool
	runs  *job
	since time.Time
}

// newMarket has pools of these platforms, each with one worker or, after a slash, one of each of
// its classes.
func newMarket(t *testing.T, seed uint64, pools ...string) *market {
	m := &market{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 11)), now: epoch, calls: map[uint64]string{}, sellers: map[string]*seller{},
		state: must(NewState(tuning.Config{
			Queues: []levels.QueueConfig{{}}, IdleHold: never, WorkerSlack: never, SyncInterval: never,
		})),
	}
	for _, p := range pools {
		platform, classes, _ := strings.Cut(p, "/")
		for _, c := range strings.Split(classes, ",") {
			class, _ := strconv.Atoi(c)
			m.open(&stall{has: split(platform), class: uint32(class)})
		}
	}
	for _, s := range m.stalls {
		m.join(s)
	}
	return m
}

// open adds a stall.
func (m *market) open(s *stall) {
	m.stalls = append(m.stalls, s)
	slices.SortFunc(m.stalls, func(a, b *stall) int {
		return cmp.Or(slices.Compare(a.has, b.has), cmp.Compare(a.class, b.class))
	})
}

func split(properties string) []string {
	return strings.FieldsFunc(properties, func(r rune) bool { return r == ',' })
}

// fits reports whether a stall has the requested properties, except for images: any image fits.
func (s *stall) fits(asked []string) bool {
	return !slices.ContainsFunc(asked, func(a string) bool { return !isImage(a) && !slices.Contains(s.has, a) })
}

func isImage(property string) bool { return strings.HasPrefix(property, "container-image=") }

// strange returns the number of requested properties that a stall lacks, and the number of its
// surplus properties.
func (s *stall) strange(asked []string) (lacks, extras int) {
	for _, a := range asked {
		if !slices.Contains(s.has, a) {
			lacks++
		}
	}
	return lacks, len(s.has) - (len(asked) - lacks)
}

// stranger returns by how many properties another stall suits a request worse.
func (s *stall) stranger(to *stall, asked []string) int {
	lacks, extras := s.strange(asked)
	l, e := to.strange(asked)
	return l + e - lacks - extras
}

func (s *stall) size() uint32 { return max(s.class, 1) }

// isOf reports whether two stalls are of one pool.
func (s *stall) isOf(other *stall) bool { return slices.Equal(s.has, other.has) }

// largest is the largest class of a stall's pool.
func (m *market) largest(s *stall) (largest *stall) {
	for _, other := range m.stalls {
		if other.isOf(s) {
			largest = other
		}
	}
	return largest
}

// costs is for how many turns a job waits at a stall rather than go to another one.
func (s *stall) costs(to *stall, j *job) float64 {
	return max(float64(to.size())/float64(s.size())*math.Exp2(float64(s.stranger(to, asks(j)))), 1) - 1
}

func (m *market) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d, at %s: %s", m.seed, m.now.Sub(epoch), fmt.Sprintf(format, args...))
}

// tell is Step, with a look at each worker that is given something, in that order.
func (m *market) tell(e event.Event) {
	m.t.Helper()
	out := m.state.Step(m.now, e)
	m.next = out.NextTick
	for _, r := range out.Replies {
		if r.Do == event.Execute {
			m.start(m.sellers[m.calls[r.Call]], r.Run.Name)
		}
	}
	if m.call%10 > 0 {
		return
	}
	if problem := m.state.Check(); problem != "" {
		m.fatal("%s", problem)
	}
}

// start starts a job on a worker, and fails the test if the job should not run there.
func (m *market) start(w *seller, name string) {
	m.t.Helper()
	if w.runs != nil {
		m.fatal("%s is given to one who has %s", name, w.runs.Name)
	}
	for _, s := range m.stalls {
		i := slices.IndexFunc(s.waiting, func(j *job) bool { return j.Name == name })
		if i < 0 {
			continue
		}
		if s == w.at && i > 0 {
			m.fatal("%s goes before %s", name, s.waiting[0].Name)
		}
		if s != w.at {
			m.move(s, w.at, s.waiting[i])
		}
		w.runs, w.since, w.idle = s.waiting[i], m.now, false
		s.waiting = slices.Delete(s.waiting, i, i+1)
		m.ran++
		return
	}
	m.fatal("%s does not wait", name)
}

// move sees that a job may go from one stall to another.
func (m *market) move(from, to *stall, j *job) {
	m.t.Helper()
	right, at, turns := m.best(from)
	if right != j || at != to || len(to.waiting) > 0 {
		m.fatal("%s goes from %v to %v, where %d wait", j.Name, from.has, to.has, len(to.waiting))
	}
	own := 0.0
	for _, s := range m.stalls {
		worth, strain := m.weigh(s)
		if s == from {
			own = strain
			if !worth {
				m.fatal("%s goes from %v to %v, which is worth %g turns", j.Name, from.has, to.has, turns)
			}
		}
	}
	for _, s := range m.stalls {
		_, there, _ := m.best(s)
		if worth, strain := m.weigh(s); worth && there == to && strain > own*(1+1e-9) {
			m.fatal("%s goes from %v, which is worth less than what waits at %v", j.Name, from.has, s.has)
		}
	}
	switch {
	case from.isOf(to):
		m.spilled++
	case turns == 0:
		m.free++
		fallthrough
	default:
		m.moved++
	}
}

// best returns the first job to move from a stall, the cheapest destination, and the turns that it
// is worth: the smallest larger class with an idle worker or, in other pools, the smallest class to
// which any job may go.
func (m *market) best(s *stall) (what *job, to *stall, turns float64) {
	for _, other := range m.stalls {
		if what == nil && other.isOf(s) && other.size() > s.size() && m.idleAt(other) != nil && len(s.waiting) > 0 {
			what, to, turns = s.waiting[0], other, s.costs(other, s.waiting[0])
		}
	}
	var last *stall
	for _, other := range m.stalls {
		if other.isOf(s) || other.size() < s.size() || m.idleAt(other) == nil || last != nil && other.isOf(last) {
			continue
		}
		j := m.first(s, other)
		if j == nil {
			continue
		}
		last = other
		if n := s.costs(other, j); what == nil || n < turns {
			what, to, turns = j, other, n
		}
	}
	return what, to, turns
}

// first returns the first job to move from a stall to one of another pool: a job that suits the
// other pool as well or, if there is none, the job that has waited longest.
func (m *market) first(s, to *stall) (first *job) {
	for _, j := range s.waiting {
		switch {
		case !to.fits(asks(j)) || !m.isFair(j, s, to):
		case s.stranger(to, asks(j)) <= 0:
			return j
		case first == nil:
			first = j
		}
	}
	return first
}

// isFair reports whether a job may have as large a class in the end as where it waits.
func (m *market) isFair(j *job, from, to *stall) bool {
	if j.Size.Class == 0 {
		return to == m.largest(to)
	}
	return m.largest(to).size() >= m.largest(from).size()
}

// weigh says whether what is first to go from a stall is worth it, and how much.
func (m *market) weigh(s *stall) (worth bool, strain float64) {
	j, _, turns := m.best(s)
	if j == nil {
		s.begun = s.begun && len(s.waiting) > 0
		return false, 0
	}
	each := float64(len(s.waiting)) / float64(s.workers)
	waited := float64(m.now.Sub(j.queued)) / float64(s.each())
	limit := turns
	if s.begun {
		limit /= 2
	}
	worth = each > limit || waited >= limit*(1-1e-9)
	if turns > 0 {
		s.begun = worth
	}
	return worth, max(each, waited) / max(turns, 1e-9)
}

// each is how long one of those that wait takes.
func (s *stall) each() time.Duration {
	if s.typical == 0 {
		return 10 * time.Second
	}
	return max(s.typical, time.Millisecond)
}

// settled checks that no job waits that an idle worker should have.
func (m *market) settled() {
	m.t.Helper()
	for _, s := range m.stalls {
		if len(s.waiting) > 0 && m.idleAt(s) != nil {
			m.fatal("%d wait where one is idle, with %v", len(s.waiting), s.has)
		}
		j, to, turns := m.best(s)
		if worth, _ := m.weigh(s); worth {
			m.fatal("%s waits at %v while one with %v is idle, which is worth %g turns", j.Name, s.has, to.has, turns)
		}
	}
	if n := m.state.View().Tally(); n.Moved != uint64(m.moved) || n.Spilled != uint64(m.spilled) {
		m.fatal("%+v, want %d moved, %d spilled", n, m.moved, m.spilled)
	}
}

func asks(j *job) (list []string) {
	for _, p := range j.Platform.Properties() {
		list = append(list, p.String())
	}
	return list
}

func (m *market) idleAt(s *stall) *seller {
	for _, w := range m.sellers {
		if w.at == s && w.idle {
			return w
		}
	}
	return nil
}

// submit adds a job to the pool with the fewest surplus properties. Of several, it chooses the one
// with the largest class if the job asks for a smaller one, and then the one with the shortest
// expected wait.
func (m *market) submit(asked string, class uint32) {
	m.t.Helper()
	m.made++
	name := fmt.Sprintf("op%d", m.made)
	op := &request.Operation{
		Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
		Platform: request.NewPlatform(properties(split(asked))), Size: request.Size{Class: class},
	}
	j := &job{op, m.now}
	var to *stall
	for _, s := range m.stalls {
		if s.fits(asks(j)) && s == m.suited(s, class) && (to == nil || m.prefers(j, s, to)) {
			to = s
		}
	}
	to.waiting = append(to.waiting, j)
	m.tell(event.Submit{Operation: op})
}

// suited is the smallest class of a stall's pool that is no smaller than one; 0 is the largest.
func (m *market) suited(s *stall, class uint32) *stall {
	for _, other := range m.stalls {
		if other.isOf(s) && class > 0 && other.size() >= class {
			return other
		}
	}
	return m.largest(s)
}

func (m *market) prefers(j *job, a, b *stall) bool {
	lacks, extras := a.strange(asks(j))
	l, e := b.strange(asks(j))
	if less := cmp.Or(cmp.Compare(lacks, l), cmp.Compare(extras, e)); less != 0 {
		return less < 0
	}
	if x, y := m.largest(a).size(), m.largest(b).size(); j.Size.Class > 0 && x != y {
		return x > y
	}
	return m.sooner(a, b)
}

func (m *market) sooner(a, b *stall) bool {
	if idle := m.idleAt(a) != nil; idle != (m.idleAt(b) != nil) {
		return idle
	}
	wait := func(s *stall) time.Duration {
		if m.idleAt(s) != nil {
			return 0
		}
		return time.Duration(float64(len(s.waiting)+1) * float64(s.typical) / float64(s.workers))
	}
	return wait(a) < wait(b)
}

func (m *market) report(name string, r event.Report) {
	m.t.Helper()
	m.call++
	m.calls[m.call] = name
	w := m.sellers[name]
	r.Call, r.Worker, r.ID = m.call, name, map[string]string{"name": name}
	r.Platform, r.SizeClass = request.NewPlatform(properties(w.at.has)), w.at.class
	m.tell(&r)
}

func (m *market) join(s *stall) {
	m.joined++
	s.workers++
	name := fmt.Sprintf("w%d", m.joined)
	m.sellers[name] = &seller{at: s, idle: true}
	m.report(name, event.Report{Doing: event.Idle})
}

// end ends a worker's job, and lets the worker ask for another one.
func (m *market) end(name string) {
	m.t.Helper()
	w := m.sellers[name]
	took := m.now.Sub(w.since)
	if w.at.typical == 0 {
		w.at.typical = took
	} else {
		w.at.typical += time.Duration(float64(took-w.at.typical) / 8)
	}
	r := event.Report{Doing: event.Completed, Action: w.runs.Digest, Response: &repb.ExecuteResponse{Result: &repb.ActionResult{}}}
	w.runs = nil
	m.report(name, r)
	if w.runs == nil {
		w.idle = true
		m.report(name, event.Report{Doing: event.Idle})
	}
}

func (m *market) cancel(s *stall) {
	if len(s.waiting) > 0 {
		i := m.random.IntN(len(s.waiting))
		name := s.waiting[i].Name
		s.waiting = slices.Delete(s.waiting, i, i+1)
		m.tell(event.Cancel{Name: name})
	}
}

// pass has time pass, with all that is due in it.
func (m *market) pass(d time.Duration) {
	m.t.Helper()
	until := m.now.Add(d)
	for {
		var due time.Time
		for _, s := range m.stalls {
			if j, _, turns := m.best(s); j != nil {
				if at := j.queued.Add(time.Duration(turns * float64(s.each()))); due.IsZero() || at.Before(due) {
					due = at
				}
			}
		}
		if !due.IsZero() && (m.next.IsZero() || m.next.Sub(due) > time.Microsecond) {
			m.fatal("State is to be told the time at %s, something is due at %s", m.next.Sub(epoch), due.Sub(epoch))
		}
		if m.next.IsZero() || m.next.After(until) { // the timer may be too early: the worker that it was for may have left meanwhile
			break
		}
		m.now = m.next
		m.tell(event.Tick{})
		m.settled()
	}
	m.now = until
}

func (m *market) busy() (names []string) {
	for name, w := range m.sellers {
		if w.runs != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const image = "a=1,container-image=i"

// marketKinds has the pools of histories, the requested properties, and the size classes.
var marketKinds = []struct {
	pools, asked []string
	classes      []uint32
}{
	{[]string{"a=1", "b=1"}, []string{"", "", "", "a=1", "b=1"}, []uint32{0}},
	{[]string{"", "a=1", "a=1,b=1"}, []string{"", "a=1", "a=1", "b=1"}, []uint32{0}},
	{[]string{"a=1", "a=1,b=1,c=1", "b=1,c=1", "c=1,d=1"}, []string{"", "a=1", "b=1", "c=1", "c=1"}, []uint32{0}},
	{[]string{"a=1/1,4", "b=1"}, []string{"", "", "", "a=1", "b=1"}, []uint32{0, 1, 1, 1}},
	{[]string{"", "a=1/1,2", "a=1,b=1/1,4"}, []string{"", "a=1", "a=1", "b=1"}, []uint32{0, 1, 1, 2}},
	{[]string{"/1,2", "a=1/1,2", "b=1/2", "c=1/1"}, []string{"", "", "a=1", "b=1", "c=1"}, []uint32{0, 1, 1, 2}},
	{[]string{"a=1,b=1", "a=1,container-image=i"}, []string{"a=1", "a=1", "a=1,b=1", image, image}, []uint32{0}},
	{[]string{"a=1,b=1/1,2", "a=1,container-image=i/1,4"}, []string{"a=1", "a=1,b=1", image, image}, []uint32{0, 1, 1, 2}},
}

// marketOf plays the history of a seed.
func marketOf(t *testing.T, seed uint64) *market {
	t.Helper()
	kind, idle := marketKinds[seed%uint64(len(marketKinds))], int(seed/uint64(len(marketKinds))%2)
	m := newMarket(t, seed, kind.pools...)
	for range 700 {
		mean := 2 * time.Second
		if m.random.IntN(8) == 0 {
			mean = 20 * time.Second
		}
		m.pass(time.Duration(m.random.ExpFloat64() * float64(mean)))
		busy := m.busy()
		switch what := m.random.IntN(14); {
		case what == 0 && m.joined < 14:
			m.join(m.stalls[m.random.IntN(len(m.stalls))])
		case what == 1:
			m.cancel(m.stalls[m.random.IntN(len(m.stalls))])
		case what < 8+idle*3 && len(busy) > 0: // in half of the histories many are idle
			m.end(busy[m.random.IntN(len(busy))])
		default:
			for range 1 + m.random.IntN(4)*m.random.IntN(3) {
				m.submit(kind.asked[m.random.IntN(len(kind.asked))], kind.classes[m.random.IntN(len(kind.classes))])
				m.settled()
			}
		}
		m.settled()
	}
	return m
}

// FuzzMoves is TestMovesAreAsTold with more seeds.
func FuzzMoves(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { marketOf(t, seed) })
}

// TestMovesAreAsTold submits and removes actions of some platforms, adds workers, and compares
// where actions run with the model.
func TestMovesAreAsTold(t *testing.T) {
	moved, free, spilled, ran := 0, 0, 0, 0
	for seed := range 2 * uint64(len(marketKinds)) { // each kind, with many idle and with few
		m := marketOf(t, seed)
		moved, free, spilled, ran = moved+m.moved, free+m.free, spilled+m.spilled, ran+m.ran
	}
	if free < 4 || moved-free < ran/100 || moved > ran/2 || spilled < ran/200 {
		t.Errorf("%d of %d actions moved, %d of them for nothing, %d went to larger classes", moved, ran, free, spilled)
	}
}

// TestMoveToWorkersThatJoinLater: actions that wait for one worker run on workers of another pool
// that come later.
func TestMoveToWorkersThatJoinLater(t *testing.T) {
	m := newMarket(t, 0, "a=1", "b=1")
	late := m.stalls[1]
	for _, w := range m.sellers {
		if w.at == late {
			m.submit("b=1", 0) // it is busy for good
		}
	}
	for range 21 {
		m.submit("a=1", 0)
		m.settled()
	}
	other := &stall{has: []string{"a=1", "c=1"}}
	m.open(other)
	for range 10 {
		m.join(other)
		m.settled()
	}
	if m.moved != 10 {
		t.Errorf("%d of 20 that wait for one worker went to ten others", m.moved)
	}
}
