package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/outputs"
)

func TestOutputPolicy(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		change: func(o *Options) { o.Outputs = outputs.Policy{Bytes: 1000, Files: 3} },
	})
	for _, c := range []struct{ name, shell, want string }{
		{"bytes", "head -c 1001 /dev/zero >out", "1000 bytes"},
		{"bytes of a folder", "mkdir out; for i in 1 2; do head -c 600 /dev/zero >out/$i; done", "1000 bytes"},
		{"files", "mkdir out; touch out/1 out/2 out/3 out/4", "3 files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec{shell: c.shell, paths: []string{"out"}}
			for _, want := range []string{c.want, "not run again for", c.want} {
				assertCode(t, f.run(t, s), codes.FailedPrecondition, want)
			}
		})
	}
	assertOK(t, f.run(t, spec{shell: "mkdir out; touch out/1 out/2; head -c 1000 /dev/zero >out/3", paths: []string{"out"}}))
	big := tree{"in/1": "x", "in/2": string(make([]byte, 2000)), "in/3": "y", "in/4": "z"}
	assertOK(t, f.run(t, spec{inputs: big, shell: "true", paths: []string{"in"}})) // unchanged
}

func TestScratchPolicy(t *testing.T) {
	for name, few := range map[string]struct {
		roots   vfs.Options
		sandbox *sandbox.Options
	}{
		"FUSE":       {roots: vfs.Options{Method: vfs.FUSE}},
		"sandbox":    {vfs.Options{Method: vfs.FUSE}, &sandbox.Options{}},
		"memory":     {roots: vfs.Options{Method: vfs.FUSE, UpperMemory: 64 << 20}},
		"links":      {roots: vfs.Options{Method: vfs.HardLink}},
		"bare links": {roots: vfs.Options{Method: vfs.HardLink, DisableOverlay: true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, few.roots, nil, farmOptions{
				sandbox: few.sandbox, change: func(o *Options) { o.Outputs.Scratch = 4 << 20 },
			})
			shells := []string{
				"head -c 5000000 /dev/zero >file; sleep 1000",                              // is stopped
				"mkdir -p d; for i in 1 2 3 4 5; do head -c 1000000 /dev/zero >d/$i; done", // has ended before
				"mkdir e; cd e; for i in $(seq 1100); do : >$i; done",                      // files without a byte
			}
			if few.sandbox != nil {
				shells = append(shells, "for f in /tmp/a /var/tmp/b; do head -c 2500000 /dev/zero >$f; done; sleep 1000")
			}
			for _, shell := range shells {
				s := spec{shell: shell}
				assertCode(t, f.run(t, s), codes.FailedPrecondition, "4194304 bytes")
				assertCode(t, f.run(t, s), codes.FailedPrecondition, "not run again for")
			}
			// Inputs are not written, however large they are, and removed files do not count at the
			// end.
			assertOK(t, f.run(t, spec{
				inputs: tree{"in": string(make([]byte, 6<<20))},
				shell:  "cat in >/dev/null; head -c 2000000 /dev/zero >out", paths: []string{"out"},
			}))
		})
	}
}

// TestScratchWithoutNames has a command write to a file that it has removed, up to the limit and
// beyond.
func TestScratchWithoutNames(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		slot: launchertest.Slot(t, 0), sandbox: &sandbox.Options{}, change: func(o *Options) { o.Outputs.Scratch = 4 << 20 },
	})
	for _, file := range []string{"/tmp/file", "file"} {
		const write = "exec 3>%s; rm %[1]s; head -c %d /dev/zero >&3; %s"
		s := spec{shell: fmt.Sprintf(write, file, 5_000_000, "sleep 1000")}
		assertCode(t, f.run(t, s), codes.FailedPrecondition, "4194304 bytes")
		assertCode(t, f.run(t, s), codes.FailedPrecondition, "not run again for")
		assertOK(t, f.run(t, spec{shell: fmt.Sprintf(write, file, 3_000_000, "sleep 1")}))
	}
}

// TestScratchHasABound has a default limit and an action that exceeds it.
func TestScratchHasABound(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{})
	s := spec{shell: "fallocate -l 1100M file; sleep 1000"}
	assertCode(t, f.run(t, s), codes.FailedPrecondition, "max_scratch")
}

func TestRefusalsAreForgotten(t *testing.T) {
	e := newRefusals()
	now := time.Now()
	of := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }
	if left, _ := e.left(of(0), now); left != 0 {
		t.Error("an action was refused from the start")
	}
	for i := range 2 * maxRefusals {
		e.add(of(i), errors.New(strings.Repeat("x", 2*maxWhy)), now)
	}
	if n := e.until.Len(); n > maxRefusals {
		t.Errorf("%d actions are remembered", n)
	}
	last := of(2*maxRefusals - 1)
	if left, why := e.left(last, now); left != refusedFor || !strings.HasPrefix(why, "xx") || len(why) > maxWhy+len("…") {
		t.Errorf("the last one is refused for %s because of %d bytes", left, len(why))
	}
	if left, _ := e.left(last, now.Add(refusedFor)); left != 0 {
		t.Error("the last one is refused for longer")
	}
	e.add(of(1), errors.New("x"), now.Add(2*refusedFor))
	if n := e.until.Len(); n != 1 {
		t.Errorf("%d actions are remembered for ever", n)
	}
}
