package vfs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// The states in which a process is killed; it reports when it has reached one.
const (
	phaseMounting = "mounting" // its first root
	phaseServing  = "serving"  // all of its roots
	phaseChanging = "changing" // closes roots and mounts them again, for ever
	phaseClosing  = "closing"  // all of its roots
	phaseWaiting  = "waiting"  // its own threads wait for files that it serves itself
)

const (
	killedRoots  = 50
	killedRounds = 20
)

// killedMain serves roots until it is killed.
func killedMain() {
	phase := os.Args[3]
	say := func(s string) {
		b, _ := json.Marshal(s)
		fmt.Println(string(b))
	}
	f, err := Open(Options{MountDir: os.Args[1], UpperDir: os.Args[2], Ready: 4})
	if err != nil {
		say(err.Error())
		os.Exit(1)
	}
	src, err := newProbeSource(os.TempDir())
	if err != nil {
		say(err.Error())
		os.Exit(1)
	}
	mount := func(i int) *Root {
		r, err := f.NewRoot(context.Background(), RootSpec{
			Name: strconv.Itoa(i), Digest: src.root, Source: stuckSource{src, func() {}},
		})
		if err == nil {
			err = os.MkdirAll(filepath.Join(r.Path(), "new/folder"), 0o700)
		}
		if err != nil {
			say(err.Error())
			os.Exit(1)
		}
		return r
	}
	if phase == phaseMounting {
		say("ready")
	}
	var ready, all sync.WaitGroup
	ready.Add(killedRoots)
	for i := range killedRoots {
		all.Go(func() {
			r := mount(i)
			ready.Done()
			for ready.Wait(); phase == phaseChanging; r = mount(i) {
				_ = r.Close()
			}
			if phase == phaseClosing {
				_ = r.Close()
			}
		})
	}
	ready.Wait()
	if phase == phaseWaiting {
		asked := make(chan struct{})
		for i := range 4 {
			go func() {
				asked <- struct{}{}
				_, _ = os.ReadFile(filepath.Join(f.points.dir, strconv.Itoa(i), "root/dir/never"))
			}()
			<-asked
		}
	}
	if phase != phaseMounting {
		say("ready")
	}
	all.Wait()
	select {}
}

// TestKilledAtAnyMoment kills a process with many roots, with others inside them, at any moment.
// The next process must clean up.
func TestKilledAtAnyMoment(t *testing.T) {
	openFS(t, Options{}) // skips where there is no FUSE
	dir := t.TempDir()
	o := Options{MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper")}
	r := rand.New(rand.NewPCG(1, 1))
	helpers := make([]*helper, 6)
	for i := range helpers {
		helpers[i] = startChild(t, "helper")
	}
	phases := []string{phaseMounting, phaseServing, phaseChanging, phaseClosing, phaseWaiting}
	var longest time.Duration
	var most int
	for round := range killedRounds {
		phase := phases[round%len(phases)]
		delay := time.Duration(r.IntN(60_000)) * time.Microsecond
		if !t.Run(fmt.Sprintf("%d %s %s", round, phase, delay), func(t *testing.T) {
			left, took := killOnce(t, o, phase, delay, helpers)
			longest, most = max(longest, took), max(most, left)
		}) {
			return
		}
	}
	t.Logf("up to %d mounts were left, and cleared away in at most %s", most, longest)
}

func killOnce(t *testing.T, o Options, phase string, delay time.Duration, helpers []*helper) (left int, took time.Duration) {
	server := startChild(t, "killed", o.MountDir, o.UpperDir, phase)
	t.Cleanup(func() { _ = mounts.Detach(o.MountDir) }) // otherwise a process that waits for itself would never end
	if got := server.answer(); got != "ready" {
		t.Fatal(got)
	}
	for i, h := range helpers {
		root := filepath.Join(o.MountDir, pointsName, strconv.Itoa(i), "root")
		switch i % 3 {
		case 0:
			h.ask("read", filepath.Join(root, "dir", "never")) // waits for the Source
		case 1:
			h.ask("chdir", filepath.Join(root, "new/folder"))
		case 2:
			h.ask("hold", filepath.Join(root, "file"))
		}
	}
	time.Sleep(delay) // the moment is the point of the test
	left, took = killAndClear(t, o, server, func() {
		for i, h := range helpers {
			if got := h.answer(); i%3 == 0 && !strings.HasPrefix(got, "error: ") {
				t.Errorf("what never came was read: %q", got)
			}
		}
	})
	return left, took
}

// killAndClear kills a process, which had as many mounts as it returns, and has another
// FS clear up after it. check is called when that has been done.
func killAndClear(t *testing.T, o Options, server *helper, check func()) (were int, took time.Duration) {
	if err := server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the end of the killed process", func() bool { return mounts.Dying(server.cmd.Process.Pid) })
	left, err := mounts.Below(o.MountDir)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	f, err := Open(o)
	took = time.Since(start)
	if err != nil {
		_ = mounts.Detach(o.MountDir)
		t.Fatalf("open after %d mounts were left: %v", len(left), err)
	}
	_ = server.cmd.Wait() // it may wait for itself, see mounts.Lock
	check()
	if again, err := mounts.Below(filepath.Join(o.MountDir, pointsName)); len(again) > 0 || err != nil {
		t.Errorf("mounts left: %q, %v", again, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{o.MountDir, o.UpperDir} { // the folders that Open moved away are removed by now
		if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
			t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
	return len(left), took
}
