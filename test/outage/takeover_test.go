package outage

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/records/redistest"
	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

var waitsLine = regexp.MustCompile(`waiting for the lease`)

// testTakeover kills one of two schedulers in the middle of a real build. The other one, which has
// waited for the lease, must take over the running actions, and no action may start twice. The
// worker has both addresses. Bazel, which accepts only one, has the address of a load balancer.
func testTakeover(f *programs.Test, c *bazel.Client) {
	p := startPair(f)
	b := startGated(f, p.client(c, startBalancer(f.T, p.listen)), "takeover", gatedActions+queuedActions)
	b.lose(p.first)
	p.second.WaitFor(&p.second.Stdout, programs.ServesLine)
	first := p.begin(p.listen[0])
	first.WaitFor(&first.Stderr, waitsLine)
	b.finish(p.both())
	p.second.Drain()
	first.WaitFor(&first.Stdout, programs.ServesLine)
	p.worker.Drain()
	first.Drain()
}

// testCompletedMeanwhile cuts a real build off from its scheduler, which then gets the results of
// all that runs, and dies. The one that takes over knows none of these operations, so Bazel executes
// its actions again: those with a result in the action cache do not run again, the others do.
func testCompletedMeanwhile(f *programs.Test, c *bazel.Client) {
	p := startPair(f)
	balancer := startBalancer(f.T, p.listen)
	b := startGated(f, p.client(c, balancer), "completed", gatedActions)
	balancer.cut()
	for name := range b.Starts() {
		b.Write("open."+name, "")
	}
	b.Eventually("the scheduler has all results", func() bool {
		return strings.Count(b.Verb(p.listen[0], "queue", "operations", "stage=executing"), "\n") <= 1 // a header
	})
	p.first.Kill()
	p.second.WaitFor(&p.second.Stdout, programs.ServesLine)
	balancer.restore()
	if r := <-b.built; r.ExitCode != 0 {
		b.Errorf("bazel: exit code %d\n%s", r.ExitCode, programs.Tail(r.Output, 50))
	}
	for name, n := range b.Starts() {
		want := 1
		if isUncached(name) {
			want = 2
		}
		if n != want {
			b.Errorf("action %s was started %d times, want %d", name, n, want)
		}
	}
	p.worker.Drain()
	p.second.Drain()
}

// A pair is two schedulers that share a lease, for which the second one waits, and a worker that
// has both addresses.
type pair struct {
	*programs.Test
	storage, state        string
	listen                []string
	first, second, worker *programs.Process
}

func startPair(f *programs.Test) *pair {
	f.Helper()
	p := &pair{Test: f, state: "redis://" + redistest.Start(f.T).Addr, listen: []string{freeport.Address(f.T), freeport.Address(f.T)}}
	_, p.storage = f.Scheduler("--data", filepath.Join(f.Dir, "storage"), "--cache-writes", "clients")
	p.first = p.begin(p.listen[0])
	p.first.WaitFor(&p.first.Stdout, programs.ServesLine)
	p.second = p.begin(p.listen[1])
	p.second.WaitFor(&p.second.Stderr, waitsLine)
	p.worker = f.Worker("worker", p.both(), p.storage, "--slots", fmt.Sprint(gatedActions))
	return p
}

// begin starts the scheduler of an address.
func (p *pair) begin(listen string) *programs.Process {
	p.Helper()
	return p.With("FORERUNNER_LEASE_TIME=2s", "FORERUNNER_SETTLE=5s").Start("forerunner-scheduler", "--data", filepath.Join(p.Dir, listen),
		"--listen", listen, "--storage", "grpc://"+p.storage, "--state", p.state, "--lease", "main")
}

// client returns a Bazel that calls the schedulers through a balancer.
func (p *pair) client(c *bazel.Client, b *balancer) *bazel.Client {
	return c.With("--remote_executor=grpc://"+b.address, "--remote_cache=grpc://"+p.storage)
}

func (p *pair) both() string { return strings.Join(p.listen, ",") }
