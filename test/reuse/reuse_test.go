package reuse

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	// someActions is the number of actions to compile, on workerCount workers; actionsVariable asks
	// for another number.
	someActions, workerCount = 30, 3
	actionsVariable          = "FORERUNNER_TEST_REUSE_ACTIONS"
	// fewActions include a header that the others do not.
	fewActions = 10
	// atOnce are executed at a time.
	atOnce = 12
)

// TestReuseOnOtherWorkers has three workers compile sources of one input tree. Then other workers,
// which have run nothing yet, get the same actions with a change in an unread file: no compiler may
// run. When a header changes, exactly the sources that read it must be compiled. A worker whose
// machine has another name, or another epoch, must run all actions.
func TestReuseOnOtherWorkers(t *testing.T) { reuseOnOtherWorkers(t, false) }

// TestReuseByScheduler is TestReuseOnOtherWorkers with a scheduler that itself reuses runs which
// the workers would: those workers get few of the actions, or none.
func TestReuseByScheduler(t *testing.T) { reuseOnOtherWorkers(t, true) }

func reuseOnOtherWorkers(t *testing.T, byScheduler bool) {
	f := programs.New(t, programs.OwnSandbox)
	if _, err := exec.LookPath("gcc"); err != nil {
		programs.Needs(t, "it compiles: %v", err)
	}
	want := someActions
	if s := os.Getenv(actionsVariable); s != "" {
		var err error
		if want, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	scheduler, address := f.With("FORERUNNER_SCHEDULER_REUSE="+strconv.FormatBool(byScheduler)).Scheduler("--cache-size", "1G")
	c := &compilers{Test: f, conn: f.Dial(address), files: map[string]string{"README": "1", "inc/few.h": "#define FEW 1\n"}}
	for i := range want {
		include := ""
		if i%(want/fewActions) == 0 && i/(want/fewActions) < fewActions {
			include = "#include \"few.h\"\n"
		}
		c.files[source(i)] = fmt.Sprintf("%s#include \"common.h\"\nint f%d(void) { return COMMON + %d; }\n", include, i, i)
	}
	c.files["inc/common.h"] = "#define COMMON 1\n"
	start := func(generation string, machine ...string) (all []*programs.Process) {
		for i := range workerCount {
			name := fmt.Sprintf("%s%d", generation, i)
			all = append(all, f.With(machine...).Worker(name, address, address, "--reuse=profile", "--cache-size=1G"))
		}
		return all
	}
	drain := func(all []*programs.Process) {
		for _, w := range all {
			w.Drain()
		}
	}

	alike := "FORERUNNER_REUSE_MACHINE=the image of a test"
	first := start("first", alike)
	built := c.compile(want)
	c.expect("the first time", built, 0)
	drain(first)

	others := start("other", alike)
	c.files["README"] = "2"
	again := c.compile(want)
	c.expect("after a change that nobody reads", again, want)
	if n := workersOf(again); n < 2 && !byScheduler {
		t.Errorf("%d worker answered all", n)
	}
	if n := sparedByScheduler(again); n == 0 == byScheduler {
		t.Errorf("the scheduler spared %d runs", n)
	}
	for i, r := range again {
		if was := built[i].GetOutputFiles()[0].GetDigest(); r.GetOutputFiles()[0].GetDigest().GetHash() != was.GetHash() {
			t.Errorf("%s: another object than a run makes", source(i))
		}
	}
	c.files["inc/few.h"] = "#define FEW 2\nint few;\n"
	changed := c.compile(want)
	c.expect("after a change that few read", changed, want-fewActions)
	for i, r := range changed {
		differs := r.GetOutputFiles()[0].GetDigest().GetHash() != built[i].GetOutputFiles()[0].GetDigest().GetHash()
		if ran := reusedFrom(r) == nil; ran != differs {
			t.Errorf("%s: it ran %t, its object is another one %t", source(i), ran, differs)
		}
	}
	drain(others)

	for what, variables := range map[string][]string{
		"on another machine":   {"FORERUNNER_REUSE_MACHINE=another image"},
		"with other tools":     {alike, "FORERUNNER_REUSE_EPOCH=gcc 99"},
		"on a machine for one": {"FORERUNNER_REUSE_MACHINE=own"},
	} {
		c.files["README"] += "3"
		strangers := start("stranger"+strconv.Itoa(len(c.files["README"])), variables...)
		c.expect(what, c.compile(workerCount), 0)
		drain(strangers)
	}
	scheduler.Drain()
}

// TestReuseOnAlikeMachines has workers find out by themselves that their machines are alike, as
// they run on the same machine. They read all files that commands see, so the test is for "make
// test-reuse".
func TestReuseOnAlikeMachines(t *testing.T) {
	if os.Getenv(actionsVariable) == "" {
		t.Skip("it reads all of /usr: make test-reuse")
	}
	f := programs.New(t, programs.OwnSandbox)
	scheduler, address := f.With("FORERUNNER_SCHEDULER_REUSE=false").Scheduler("--cache-size", "1G")
	c := &compilers{Test: f, conn: f.Dial(address), files: map[string]string{"README": "1"}}
	knows := regexp.MustCompile(`runs are (shared with workers|no longer shared).*`)
	for _, name := range []string{"first", "second"} {
		at := freeport.Address(t)
		w := f.Worker(name, address, address, "--reuse=profile", "--cache-size=1G", "--http", at)
		t.Log(w.WaitFor(&w.Stderr, knows)[0])
		r := c.execute(c.scan(), []string{"/bin/sh", "-c", "echo made > out/0.o"}, 0)
		if from := reusedFrom(r); (from != nil) != (name == "second") {
			t.Errorf("on the %s worker the result is of %v", name, from)
		}
		result := map[string]string{"first": "kept", "second": "spared"}[name]
		f.Eventually("a run is "+result, func() bool {
			return strings.Contains(c.metrics(at), `forerunner_worker_accounts_total{result="`+result+`"} 1`)
		})
		c.files["README"] += "2"
		w.Drain()
	}
	scheduler.Drain()
}

func source(i int) string { return fmt.Sprintf("src/s%d.c", i) }

// compilers execute actions on one input tree.
type compilers struct {
	*programs.Test
	conn  *grpc.ClientConn
	files map[string]string
	scans int
}

// metrics returns what a worker counts.
func (c *compilers) metrics(address string) string {
	c.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// scan makes the input tree of the files as they are now.
func (c *compilers) scan() *client.Inputs {
	c.Helper()
	c.scans++
	dir := fmt.Sprint("tree", c.scans)
	for name, text := range c.files {
		c.Write(filepath.Join(dir, name), text)
	}
	inputs, err := client.Scan(c.Context(), digest.SHA256, []client.Mount{{Dir: filepath.Join(c.Dir, dir)}}, nil)
	if err != nil {
		c.Fatal(err)
	}
	return inputs
}

// compile compiles the first sources and returns the results.
func (c *compilers) compile(n int) []*repb.ActionResult {
	c.Helper()
	inputs, results := c.scan(), make([]*repb.ActionResult, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				results[i] = c.execute(inputs, []string{"/usr/bin/gcc", "-c", "-I", "inc", "-o", fmt.Sprintf("out/%d.o", i), source(i)}, i)
			}
		})
	}
	all.Wait()
	if c.Failed() {
		c.FailNow()
	}
	return results
}

// execute runs a command that makes out/i.o, and returns its result, which is empty after an error.
func (c *compilers) execute(inputs *client.Inputs, args []string, i int) *repb.ActionResult {
	c.Helper()
	outcome, err := client.Execute(c.Context(), c.conn, client.Request{
		Command: client.NewCommand(args, []string{fmt.Sprintf("out/%d.o", i)}, "", map[string]string{"PATH": "/usr/bin:/bin"}, nil),
		Inputs:  inputs,
	})
	switch {
	case err != nil:
		c.Errorf("%q: %v", args, err)
	case outcome.Status != nil || outcome.Result.GetExitCode() != 0 || len(outcome.Result.GetOutputFiles()) != 1:
		c.Errorf("%q: %v, %v", args, outcome.Status, outcome.Result)
	default:
		return outcome.Result
	}
	return &repb.ActionResult{}
}

// expect checks that that many of the results are from earlier runs.
func (c *compilers) expect(what string, results []*repb.ActionResult, spared int) {
	c.Helper()
	got := 0
	for _, r := range results {
		if reusedFrom(r) != nil {
			got++
		}
	}
	c.Logf("%s: %d of %d runs were spared, %d of them by the scheduler, %d by workers",
		what, got, len(results), sparedByScheduler(results), got-sparedByScheduler(results))
	if got != spared {
		c.Errorf("%s: %d of %d runs were spared, want %d", what, got, len(results), spared)
	}
}

// sparedByScheduler counts the results that no worker answered.
func sparedByScheduler(results []*repb.ActionResult) (n int) {
	for _, r := range results {
		if reusedFrom(r).GetScheduler() {
			n++
		}
	}
	return n
}

// workersOf counts the workers that answered.
func workersOf(results []*repb.ActionResult) int {
	seen := map[string]bool{}
	for _, r := range results {
		name, _, _ := strings.Cut(r.GetExecutionMetadata().GetWorker(), ",position=")
		seen[name] = true
	}
	return len(seen)
}

// reusedFrom returns what a result says of the run that it is of; nil: it is its own.
func reusedFrom(r *repb.ActionResult) *actionstats.Reused {
	for _, packed := range r.GetExecutionMetadata().GetAuxiliaryMetadata() {
		m := &actionstats.Reused{}
		if packed.MessageIs(m) && packed.UnmarshalTo(m) == nil {
			return m
		}
	}
	return nil
}
