package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	gatedActions  = 4 // run when the scheduler is killed
	queuedActions = 6 // wait for a slot then
	downtime      = time.Second
)

// TestBazelThroughRestart kills a scheduler, and the storage in it, in the middle of a real build.
// One action ends while it is gone, others after it is back, others have not begun. The build
// succeeds and no action is started twice.
func TestBazelThroughRestart(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	bazel := debianBazel(t)
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: shareFolder}
	workspace := restartWorkspace(f)
	data, listen := filepath.Join(f.dir, "scheduler"), freeAddress(t)
	serve := func() *process {
		p, _ := f.scheduler("--data", data, "--listen", listen, "--settle", "5s")
		return p
	}
	scheduler := serve()
	worker := f.worker("worker", listen, listen, "--slots", fmt.Sprint(gatedActions))
	// Five retries, the default, last for 3 s.
	c := newBazelClient(t, bazel, workspace, "--config=remote", "--jobs=20", "--remote_retries=20", "--remote_executor=grpc://"+listen)
	b := startGated(f, c)
	b.lose(scheduler)
	time.Sleep(downtime)
	scheduler = serve()
	r := b.finish(listen)
	for _, spawn := range r.spawns {
		if !strings.HasPrefix(spawn.Runner, "remote") {
			t.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
		}
	}
	c.shutdown(t)
	worker.drain()
	scheduler.drain()
}

// A gatedBuild is a build of a restartWorkspace whose scheduler is killed in the middle of it.
type gatedBuild struct {
	*farmTest
	built   <-chan bazelRun
	running []string // what had started by then
}

// startGated begins the build and returns when all slots are busy.
func startGated(f *farmTest, c *bazelClient) *gatedBuild {
	f.Helper()
	b := &gatedBuild{farmTest: f, built: c.start(f.T, "build", "//restart:all")}
	f.eventually("all slots are busy", func() bool { return len(f.starts()) == gatedActions })
	return b
}

// lose kills the scheduler and has an action end without it.
func (b *gatedBuild) lose(scheduler *process) {
	b.Helper()
	scheduler.kill()
	b.running = slices.Sorted(maps.Keys(b.starts()))
	b.write("open."+b.running[0], "")
	b.eventually("an action ends without a scheduler", func() bool { return b.exists("end." + b.running[0]) })
}

// finish has the build go on with the scheduler at an address: it has to succeed, with each action
// started once.
func (b *gatedBuild) finish(remote string) bazelRun {
	b.Helper()
	b.eventually("clients have joined what runs", func() bool {
		return strings.Count(b.verb(remote, "queue", "operations", "stage=executing"), "\n") == gatedActions // and a header
	})
	for _, name := range b.running[1:] {
		b.write("open."+name, "")
	}
	r := <-b.built
	if r.exitCode != 0 {
		b.Errorf("bazel: exit code %d\n%s", r.exitCode, tail(r.output, 50))
	}
	starts := b.starts()
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

// restartWorkspace makes a workspace whose actions say that they start. The first ones to do so, as
// many as there are slots, go on only when a file is there. Some are not to be cached, so that
// nobody may join them.
func restartWorkspace(f *farmTest) string {
	f.Helper()
	workspace := f.TempDir()
	if err := os.CopyFS(workspace, os.DirFS("../testdata/bazel")); err != nil {
		f.Fatalf("copy workspace: %v", err)
	}
	var build strings.Builder
	for i := range gatedActions + queuedActions {
		name, tags := fmt.Sprintf("action%d", i), ""
		if i%2 == 0 {
			tags = `tags = ["no-cache"],`
		}
		fmt.Fprintf(&build, `genrule(name = %q, outs = ["%[1]s.txt"], %s cmd = """
			cd %[3]s && echo %[1]s >> starts
			if [ $$(wc -l < starts) -le %[4]d ]; then until [ -e open.%[1]s ]; do sleep 0.05; done; fi
			touch end.%[1]s; cd - > /dev/null; echo %[1]s > $@
		""")
		`, name, tags, f.dir, gatedActions)
	}
	dir := filepath.Join(workspace, "restart")
	text := strings.ReplaceAll(build.String(), "\n\t\t", "\n")
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "BUILD"), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	return workspace
}

// starts says how often each action has been started.
func (f *farmTest) starts() map[string]int {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "starts"))
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	counts := map[string]int{}
	for name := range strings.FieldsSeq(string(text)) {
		counts[name]++
	}
	return counts
}

func (f *farmTest) exists(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}
