// Package migration walks the steps of docs/MIGRATING.md: from a farm of Buildbarn's programs, for
// which it has stand-ins that behave as those were seen to, to Forerunner's, and back.
package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// ranByForerunner is the output of every command.
const ranByForerunner = "forerunner\n"

// A walk is one way through the page.
type walk struct {
	*programs.Test
	page     string
	platform *repb.Platform
	rounds   int
}

// command returns the command line of a program on the page, with other values of flags.
func (w *walk) command(program string, values map[string]string, more ...string) []string {
	w.Helper()
	line := regexp.MustCompile(`(?m)^` + program + ` --.*$`).FindString(w.page)
	if line == "" {
		w.Fatalf("the page starts no %s", program)
	}
	args := strings.Fields(line)
	for flag, value := range values {
		i := slices.Index(args, flag)
		if i < 0 {
			w.Fatalf("the page does not give %s in %q", flag, line)
		}
		args[i+1] = value
	}
	return append(args, more...)
}

// schedulers returns the page's line of bb_storage's configuration, for another scheduler.
func (w *walk) schedulers(address string) string {
	w.Helper()
	m := schedulersLine.FindStringSubmatch(w.page)
	if m == nil {
		w.Fatal("the page has no line of schedulers")
	}
	return strings.Replace(m[0], m[1], address, 1)
}

// patience is how long an action may take.
const patience = time.Minute

// run has a client run a command, which waits for a gate, and returns which worker ran it.
func (w *walk) run(at string, round, number int) (ran string, action digest.Digest, err error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	conn := w.Dial(at)
	script := fmt.Sprintf("until [ -e %s ]; do sleep 0.02; done; echo forerunner # %d", w.gate(round), number)
	outcome, err := client.Execute(ctx, conn, client.Request{
		Command: &repb.Command{Arguments: []string{"/bin/sh", "-c", script}}, Platform: w.platform,
	})
	if err == nil {
		err = outcome.Status
	}
	if err != nil {
		return "", action, err
	}
	result, blobs := outcome.Result, casclient.New(conn, casclient.Options{})
	stdout, err := client.Output(ctx, blobs, digest.SHA256, result.GetStdoutRaw(), result.GetStdoutDigest())
	return string(stdout), outcome.Action, err
}

func (w *walk) gate(round int) string { return filepath.Join(w.Dir, fmt.Sprint("gate", round)) }

// An end is the outcome of one action.
type end struct {
	ran    string
	action digest.Digest
	err    error
}

// share runs as many concurrent actions as our worker has slots, and one more, for a worker of
// theirs, which ends before ours may. Then all results must be in the action cache, whichever
// worker made them.
func (w *walk) share(at string, ours int, theirs *worker) {
	w.Helper()
	w.rounds++
	round := w.rounds
	theirs.takes <- struct{}{}
	ends := make(chan end, ours+1)
	for i := range ours + 1 {
		go func() {
			var e end
			e.ran, e.action, e.err = w.run(at, round, i)
			ends <- e
		}()
	}
	results := repb.NewActionCacheClient(w.Dial(at))
	for i := range ours + 1 {
		want := ranByForerunner
		if i == 0 {
			want = ranByBuildbarn
		}
		e := <-ends
		if e.err != nil || e.ran != want {
			w.Fatalf("round %d: an action has printed %q, %v, want %q", round, e.ran, e.err, want)
		}
		if i == 0 {
			w.Write(filepath.Base(w.gate(round)), "")
		}
		if _, err := results.GetActionResult(w.Context(), &repb.GetActionResultRequest{ActionDigest: e.action.Proto()}); err != nil {
			w.Errorf("round %d: the result of what printed %q is not in the action cache: %v", round, e.ran, err)
		}
	}
}

// TestMigration replaces workers, scheduler and storage of a farm, one after the other, while clients
// use the same address, and goes back.
func TestMigration(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/MIGRATING.md")
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{
		Test: programs.New(t, programs.ShareFolder), page: string(page),
		platform: &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OSFamily", Value: "linux"}}},
	}
	storage := startStorage(w.Test)
	theirs := startScheduler(w.Test, storage.address)
	storage.configure(w.schedulers(theirs.address))
	old := startWorker(w.Test, "old", theirs.address, storage.address, w.platform)
	w.share(storage.address, 0, old)

	// Forerunner's workers besides Buildbarn's.
	beside := w.worker("beside", theirs.address, storage.address, "--size-class=0")
	w.share(storage.address, 2, old)
	if got := theirs.workers(w.platform); len(got) != 3 {
		t.Errorf("with a thread and two slots, the scheduler counts the workers %q", got)
	}
	classed := w.worker("classed", theirs.address, storage.address)
	classed.WaitFor(&classed.Stderr, regexp.MustCompile("multiple size classes"))
	w.share(storage.address, 2, old) // it does not lock the others out
	classed.Drain()
	beside.Drain()

	// Forerunner's scheduler, for the same clients and for workers of both kinds. Its storage asks it
	// for its capabilities before it answers.
	address := freeport.Address(t)
	storage.configure(w.schedulers(address))
	scheduler := w.Start(w.command("forerunner-scheduler", map[string]string{
		"--listen": address, "--storage": "grpc://" + storage.address, "--data": filepath.Join(w.Dir, "scheduler"),
	})...)
	scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)
	moved := startWorker(w.Test, "moved", address, storage.address, w.platform)
	worker := w.worker("worker", address, storage.address)
	w.share(storage.address, 2, moved)
	moved.stop()
	worker.Drain()

	// Back.
	storage.configure(w.schedulers(theirs.address))
	w.share(storage.address, 0, old)
	scheduler.Drain()
	old.stop()

	// Forerunner's storage.
	whole, address := w.Scheduler("--cache-writes=clients")
	last := startWorker(w.Test, "last", address, address, w.platform)
	worker = w.worker("alone", address, address)
	w.share(address, 2, last)
	worker.Drain()
	whole.Drain()
}

// worker starts the page's worker.
func (w *walk) worker(name, scheduler, storage string, more ...string) *programs.Process {
	w.Helper()
	data := filepath.Join(w.Dir, name)
	w.Cleanup(func() { programs.ExpectNoMounts(w.T, data) })
	p := w.Start(w.command("forerunner-worker", map[string]string{
		"--scheduler": "grpc://" + scheduler, "--storage": "grpc://" + storage, "--data": data,
	}, append([]string{"--id", "name=" + name}, more...)...)...)
	p.WaitFor(&p.Stderr, programs.ReadyLine)
	return p
}
