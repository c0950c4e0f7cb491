package outage

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	gatedActions  = 4 // run when the scheduler is killed
	queuedActions = 6 // wait for a slot then
	downtime      = time.Second
)

// testRestart kills a scheduler, with its storage, in the middle of a real build. One action ends
// while the scheduler is down, others after it is back, and others have not begun. The build must
// succeed and no action may start twice.
func testRestart(f *programs.Test, c *bazel.Client) {
	data, listen := filepath.Join(f.Dir, "scheduler"), freeport.Address(f.T)
	serve := func() *programs.Process {
		p, _ := f.With("FORERUNNER_SETTLE=5s").Scheduler("--data", data, "--listen", listen)
		return p
	}
	scheduler := serve()
	worker := f.Worker("worker", listen, listen, "--slots", fmt.Sprint(gatedActions))
	b := startGated(f, c.With("--remote_executor=grpc://"+listen), "restart", gatedActions+queuedActions)
	b.lose(scheduler)
	time.Sleep(downtime)
	scheduler = serve()
	r := b.finish(listen)
	for _, spawn := range r.Spawns {
		if !strings.HasPrefix(spawn.Runner, "remote") {
			f.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
		}
	}
	worker.Drain()
	scheduler.Drain()
}

// A gatedBuild is a build of gated actions whose scheduler is killed in the middle of it.
type gatedBuild struct {
	*programs.Test
	built   <-chan bazel.Run
	running []string // actions that had started by then
}

// startGated begins the build of that many actions, in a package of its own, and returns when all
// slots are busy.
func startGated(f *programs.Test, c *bazel.Client, name string, actions int) *gatedBuild {
	f.Helper()
	c.WritePackage(f.T, name, map[string]string{"BUILD": gated(f.Dir, actions)})
	b := &gatedBuild{Test: f, built: c.Start(f.T, "build", "//"+name+":all")}
	f.Eventually("all slots are busy", func() bool { return len(f.Starts()) == gatedActions })
	return b
}

// lose kills the scheduler and lets an action end without it.
func (b *gatedBuild) lose(scheduler *programs.Process) {
	b.Helper()
	scheduler.Kill()
	b.running = slices.Sorted(maps.Keys(b.Starts()))
	b.Write("open."+b.running[0], "")
	b.Eventually("an action ends without a scheduler", func() bool { return b.Exists("end." + b.running[0]) })
}

// finish lets the build continue with the scheduler at an address. The build must succeed, with
// each action started once.
func (b *gatedBuild) finish(remote string) bazel.Run {
	b.Helper()
	b.Eventually("clients have joined what runs", func() bool {
		return strings.Count(b.Verb(remote, "queue", "operations", "stage=executing"), "\n") == gatedActions // and a header
	})
	for _, name := range b.running[1:] {
		b.Write("open."+name, "")
	}
	r := <-b.built
	if r.ExitCode != 0 {
		b.Errorf("bazel: exit code %d\n%s", r.ExitCode, programs.Tail(r.Output, 50))
	}
	starts := b.Starts()
	for name, n := range starts {
		if n != 1 {
			b.Errorf("action %s was started %d times", name, n)
		}
	}
	if len(starts) != gatedActions+queuedActions {
		b.Errorf("started were %v", starts)
	}
	return r
}

// gated declares actions that report their start. The first ones, as many as there are slots,
// continue only when a file exists. Some are not cacheable, so that no other operation may join
// them.
func gated(dir string, actions int) string {
	var build strings.Builder
	for i := range actions {
		name, tags := fmt.Sprintf("action%d", i), ""
		if isUncached(name) {
			tags = `tags = ["no-cache"],`
		}
		fmt.Fprintf(&build, `genrule(name = %q, outs = ["%[1]s.txt"], %s cmd = """
			cd %[3]s && echo %[1]s >> starts
			if [ $$(wc -l < starts) -le %[4]d ]; then until [ -e open.%[1]s ]; do sleep 0.05; done; fi
			touch end.%[1]s; cd - > /dev/null; echo %[1]s > $@
		""")
		`, name, tags, dir, gatedActions)
	}
	return strings.ReplaceAll(build.String(), "\n\t\t", "\n")
}

// isUncached reports whether the result of a gated action is not to be cached.
func isUncached(name string) bool { return strings.ContainsAny(name[len(name)-1:], "02468") }
