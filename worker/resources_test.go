package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/vfs"
)

// newSlot makes the group of a slot with 48 MiB of memory and one CPU.
func newSlot(t *testing.T) *cgroup.Slot {
	t.Helper()
	needRoot(t)
	machine, err := cgroup.Measure()
	check(t, err)
	p, err := cgroup.Open(cgroup.Options{Name: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name())})
	if err == nil {
		t.Cleanup(func() { check(t, p.Close()) })
		err = errors.Join(p.Missing()...)
	}
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	check(t, err)
	s, err := p.Slot("0")
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	check(t, s.Limit(cgroup.Limits{CPUs: machine.CPUs[:1], Memory: 48 << 20, Pids: 100}))
	return s
}

// auxiliary finds what a response says about its action in a message of m's kind.
func auxiliary[M proto.Message](t *testing.T, r *repb.ExecuteResponse, m M) M {
	t.Helper()
	for _, extra := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		if extra.MessageIs(m) {
			check(t, extra.UnmarshalTo(m))
			return m
		}
	}
	t.Fatalf("the response has no %T", m)
	return m
}

func TestOutOfMemory(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{slot: newSlot(t)})
	const hog = "head -c 100M /dev/zero | tail >/dev/null"
	for _, c := range []struct{ name, shell, message string }{
		{"the command", "exec sh -c '" + hog + "'", ""},
		{"a child, and the command exits with 0", "echo made >out; " + hog + "; exit 0", "ended with exit code 0"},
		{"a child, and the command exits with 3", hog + "; exit 3", "ended with exit code 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := f.start(t, spec{shell: c.shell, paths: []string{"out"}})
			r := j.result(t)
			if r.GetStatus().GetCode() != 0 || r.GetResult().GetExitCode() != 137 {
				t.Fatalf("status %v, exit code %d", r.GetStatus(), r.GetResult().GetExitCode())
			}
			for _, want := range []string{"out of memory", "limit 48 MiB", "peak ", c.message} {
				if !strings.Contains(r.GetMessage(), want) {
					t.Errorf("message %q does not say %q", r.GetMessage(), want)
				}
			}
			if used := auxiliary(t, r, &actionstats.Resources{}); used.GetOutOfMemoryKills() == 0 {
				t.Errorf("resources: %v", used)
			}
			f.assertNotCached(t, j)
		})
	}
	r := f.run(t, spec{shell: "kill -9 $$"})
	if strings.Contains(r.GetMessage(), "memory") || r.GetResult().GetExitCode() != 137 {
		t.Errorf("killed by hand: exit code %d, message %q", r.GetResult().GetExitCode(), r.GetMessage())
	}
	f.assertGood(t)
}

func TestResourcesAreReported(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{slot: newSlot(t)})
	r := f.run(t, spec{shell: "head -c 20M /dev/zero | tail >/dev/null; (setsid timeout 0.2 sh -c 'while :; do :; done' &); sleep 0.3"})
	assertOK(t, r)
	used := auxiliary(t, r, &actionstats.Resources{})
	public := auxiliary(t, r, &resourceusage.POSIXResourceUsage{})
	if used.GetMemoryPeakBytes() < 20<<20 || used.GetMemoryLimitBytes() != 48<<20 || used.GetCpus() != 1 {
		t.Errorf("resources: %v", used)
	}
	// The orphan counts in both.
	if cpu := used.GetUserTime().AsDuration() + used.GetSystemTime().AsDuration(); cpu < 1e7 ||
		!proto.Equal(used.GetUserTime(), public.GetUserTime()) {
		t.Errorf("CPU times: %v, %v", used, public)
	}
	// The next action begins at zero.
	r = f.run(t, spec{shell: "true"})
	if again := auxiliary(t, r, &actionstats.Resources{}); again.GetMemoryPeakBytes() > 19<<20 {
		t.Errorf("the next action: %v", again)
	}
}

// TestKilledOnce: a command is killed by an unknown process. It runs once more, and only a second
// kill is its result.
func TestKilledOnce(t *testing.T) {
	f := newFarm(t)
	flag := filepath.Join(t.TempDir(), "flag")
	r := f.run(t, spec{shell: fmt.Sprintf("[ -e %s ] || { touch %[1]s; kill -9 $$; }; echo made > out", flag), paths: []string{"out"}})
	assertOK(t, r)
	if files := r.GetResult().GetOutputFiles(); len(files) != 1 || f.read(t, files[0].GetDigest()) != "made\n" {
		t.Errorf("outputs are %v", files)
	}
	count := filepath.Join(t.TempDir(), "count")
	r = f.run(t, spec{shell: fmt.Sprintf("echo x >> %s; kill -9 $$", count)})
	if r.GetResult().GetExitCode() != 137 {
		t.Errorf("result: %v", r)
	}
	if runs, err := os.ReadFile(count); err != nil || string(runs) != "x\nx\n" {
		t.Errorf("it ran %q, %v", runs, err)
	}
}
