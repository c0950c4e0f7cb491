package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// announcements has the announced properties of workers, by their key. From them a test computes
// which worker may run which action: it knows the rule, but no pools.
type announcements map[string]announcement

// An announcement is a worker's: texts "name=value".
type announcement struct {
	prefix               string
	has, needs, machines []string
}

// hear records what an event announces about a worker; known reports whether a worker existed
// before the event.
func (ps announcements) hear(e event.Event, out event.Out, known func(worker string) bool) {
	switch e := e.(type) {
	case *event.Report:
		if out.Err == nil {
			ps.remember(ps[e.Worker])
			ps[e.Worker] = announcementOf(e.Prefix, e.Platform)
		}
	case event.Restore:
		departed := func(d event.Departure) bool { return d.Worker == e.Worker }
		if !known(e.Worker) || slices.ContainsFunc(out.Departures, departed) {
			ps.remember(ps[e.Worker]) // its pool may be declared, and stay
			ps[e.Worker] = announcementOf(e.Prefix, e.WorkerPlatform)
		}
	}
}

// remember stores a worker's announcement about its machine. While other workers of its pool exist
// that announce nothing, it counts for them too, and it may become known later that the worker was
// gone by then.
func (ps announcements) remember(p announcement) {
	if len(p.machines) > 0 {
		ps[fmt.Sprint("was ", p)] = p
	}
}

func announcementOf(prefix string, p request.Platform) announcement {
	texts := func(p request.Platform) (list []string) {
		for _, x := range p.Properties() {
			list = append(list, x.Name+"="+x.Value)
		}
		return list
	}
	return announcement{prefix, texts(p), texts(request.NewPlatform(p.Required())), texts(request.NewPlatform(p.Implied()))}
}

// same reports whether a worker counts one property as another.
func same(a, b string) bool {
	if strings.HasPrefix(a, "OSFamily=") || strings.HasPrefix(a, "ISA=") {
		name, _, _ := strings.Cut(a, "=")
		return strings.HasPrefix(b, name+"=") && strings.EqualFold(a, b)
	}
	return a == b
}

func among(list []string, b string) bool {
	return slices.ContainsFunc(list, func(a string) bool { return same(a, b) })
}

// rank says how well a worker of p suits an action, the less the better; false: it does not.
func (p announcement) rank(instance string, asked []string) ([3]int, bool) {
	if p.prefix != "" && instance != p.prefix && !strings.HasPrefix(instance, p.prefix+"/") {
		return [3]int{}, false
	}
	strange, extras := 0, 0
	for _, want := range asked {
		name, _, _ := strings.Cut(want, "=")
		if among(p.has, want) || among(p.machines, want) {
			continue
		}
		says := slices.ContainsFunc(p.has, func(h string) bool { return strings.HasPrefix(h, name+"=") })
		if says || name != "container-image" && name != "persistentWorkerKey" && name != "dockerNetwork" {
			return [3]int{}, false
		}
		strange++
	}
	for _, need := range p.needs {
		if !among(asked, need) {
			return [3]int{}, false
		}
	}
	for _, h := range p.has {
		if !among(asked, h) {
			extras++
		}
	}
	return [3]int{-len(p.prefix), strange, extras}, true
}

// best returns the rank of a worker by its own announcement, or by that of a worker that is the
// same in every other respect.
func (ps announcements) best(key, instance string, asked []string) (best [3]int, ok bool) {
	own := ps[key]
	all := []announcement{own}
	if len(own.machines) == 0 {
		for _, p := range ps {
			if p.prefix == own.prefix && slices.Equal(p.has, own.has) && slices.Equal(p.needs, own.needs) {
				all = append(all, p)
			}
		}
	}
	for _, p := range all {
		if r, fits := p.rank(instance, asked); fits {
			return r, true // which only the machines could change
		}
	}
	return best, false
}

// check returns a description of any violation of the rule by a State. behind: some workers were
// still to be undrained before the event, which may have come after the submission.
func (ps announcements) check(s *State, e event.Event, refused error, behind bool) string {
	for key, w := range s.workers.All() {
		if w.task == nil || w.task.spec == nil {
			continue
		}
		asked := announcementOf("", w.task.spec.Platform).has
		if _, ok := ps.best(key, w.task.spec.Instance, asked); !ok {
			return fmt.Sprintf("worker %s, which is %v, runs what asks for %v in %q", key, ps[key],
				asked, w.task.spec.Instance)
		}
	}
	for _, t := range s.dispatch.unmatched.All() {
		if s.isBehind() {
			break
		}
		asked := announcementOf("", t.spec.Platform).has
		for key, w := range s.workers.All() {
			if _, ok := ps.best(key, t.spec.Instance, asked); ok && len(ps[key].machines) > 0 &&
				w.takes == Serving && w.queue.admits(t.spec.Instance) {
				return fmt.Sprintf("worker %s, which is %v, could run what is unmatched and asks for %v", key, ps[key], asked)
			}
		}
	}
	submitted, ok := e.(event.Submit)
	if !ok || refused != nil || behind {
		return ""
	}
	return ps.checkChoice(s, s.operations.byName[submitted.Name])
}

// checkChoice says why what was just submitted does not wait, or run, where it suits best.
func (ps announcements) checkChoice(s *State, o *operation) string {
	if o == nil || o.task == nil || o.task.spec != o.spec || o.task.attempts > 1 || o.task.inherited() {
		return ""
	}
	t := o.task
	asked := announcementOf("", t.spec.Platform).has
	least := [3]int{1}
	var chosen [3]int
	found := false
	for key, w := range s.workers.All() {
		r, ok := ps.best(key, t.spec.Instance, asked)
		if !ok || !w.pool.Serves(t.spec) {
			continue
		}
		if w.pool == t.pool {
			chosen, found = r, true
		}
		if w.takes == Serving && w.queue.admits(t.spec.Instance) &&
			(least[0] > 0 || slices.Compare(r[:], least[:]) < 0) {
			least = r
		}
	}
	if t.worker() != nil && chosen[0] == least[0] && !ps.idles(s, t, chosen) {
		return "" // it went on from where it suits best
	}
	if found && least[0] <= 0 && slices.Compare(chosen[:], least[:]) > 0 && !t.pool.hasDeclared() {
		return fmt.Sprintf("%s asks for %v in %q and is of %v, rank %v; there is one of rank %v",
			t.spec.Name, asked, t.spec.Instance, t.pool.Key(), chosen, least)
	}
	return ""
}

// idles reports whether a worker that suits a task better than so is idle, and no larger than the
// one that has it.
func (ps announcements) idles(s *State, t *task, rank [3]int) bool {
	for key, w := range s.workers.All() {
		r, ok := ps.best(key, t.spec.Instance, announcementOf("", t.spec.Platform).has)
		if ok && slices.Compare(r[:], rank[:]) < 0 && w.entry.Waits() && w.queue.size() == t.worker().queue.size() && w.queue.mayRunMore(levels.Bounded(t.spec.Instance)) {
			return true
		}
	}
	return false
}

// checkMoves describes a task that waits although an idle worker of another pool suits it as well
// as the workers of its own pool.
func (ps announcements) checkMoves(s *State) string {
	for _, idle := range s.workers.All() {
		if !idle.entry.Waits() {
			continue
		}
		for p := range s.dispatch.pools.All() {
			for _, q := range p.queues {
				if p == idle.pool || p.Prefix != idle.pool.Prefix || q.size() != idle.queue.size() {
					continue
				}
				for _, t := range q.tasks() {
					of := levels.Bounded(t.spec.Instance)
					if !t.wanted() || !q.mayRunMore(of) || !idle.queue.mayRunMore(of) || !idle.queue.admits(t.spec.Instance) ||
						t.avoidsProgram(idle.program) || !q.promisesNoMore(t, idle.queue) { // the model of these is in a market
						continue
					}
					asked := announcementOf("", t.spec.Platform).has
					there, ok := announcementOf(p.Prefix, idle.pool.Platform).rank(t.spec.Instance, asked)
					here, _ := announcementOf(p.Prefix, p.Platform).rank(t.spec.Instance, asked)
					if ok && there[1]+there[2] <= here[1]+here[2] {
						return fmt.Sprintf("%s waits for %v while %s is idle, which is %v", t.spec.Name, p.Key(), idle.Key, idle.pool.Key())
					}
				}
			}
		}
	}
	return ""
}

// TestFitsAsTheRuleSays compares platforms of any properties with the rule.
func TestFitsAsTheRuleSays(t *testing.T) {
	words := []string{
		"a=1", "a=2", "b=1", "A=1", "OSFamily=linux", "OSFamily=Linux",
		"OSFamily=windows", "ISA=x86-64", "ISA=X86-64", "isa=x86-64",
		"container-image=i", "container-image=j", "persistentWorkerKey=k", "dockerNetwork=off", "gpu=1",
	}
	r := rand.New(rand.NewPCG(1, 2))
	some := func(most int) (list []string) {
		for range r.IntN(most + 1) {
			list = append(list, words[r.IntN(len(words))])
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	fitting := 0
	for range 50_000 {
		asked, has, needs, machine := some(3), some(4), some(1), some(2)
		offer := request.NewOffer(properties(has), properties(needs), properties(machine))
		want := request.NewPlatform(properties(asked))
		rank, fits := announcementOf("", offer).rank("", announcementOf("", want).has)
		if offer.Fits(want) != fits {
			t.Fatalf("%v of %v requires %v, implies %v: fits %v: %t", offer, has, needs, machine, asked, !fits)
		}
		if !fits {
			continue
		}
		fitting++
		if unknown, extras := offer.Distance(want); unknown != rank[1] || extras != rank[2] {
			t.Fatalf("%v to %v is %d, %d; want %v", offer, asked, unknown, extras, rank)
		}
	}
	if fitting < 1000 {
		t.Errorf("only %d fit", fitting)
	}
}

func properties(list []string) *repb.Platform {
	if len(list) == 0 {
		return nil
	}
	return parsePlatform(strings.Join(list, ","))
}
