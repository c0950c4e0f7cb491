package operator

import (
	"runtime"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestWhoMayRunWhat has a farm with default settings serve the platforms that clients of other
// services use, reserves a worker for actions that ask for it, and soon refuses actions for which
// there is no worker.
func TestWhoMayRunWhat(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	farm, up := f.Up("data", "--slots", "1", "--http", "")
	for _, platform := range []string{
		"OSFamily=Linux,container-image=docker://gcr.io/x/y@sha256:1234", // reclient, siso
		"OSFamily=linux,persistentWorkerKey=1234,persistentWorkerProtocol=json,dockerNetwork=standard",
		"",
	} {
		args := []string{}
		if platform != "" {
			args = append(args, "--platform", platform)
		}
		f.Exec(up, append(args, "--", "/bin/sh", "-c", "echo done # "+platform)...).Expect(0, "done\n")
	}
	f.Exec(up, "--platform", "osfamily=linux", "--", "/bin/true").Expect(1, "",
		`no worker has osfamily=linux; connected workers have no property "osfamily"`, "!found no worker in 1m0s")
	farm.Drain()

	farm, kept := f.Up("gpu", "--slots", "1", "--http", "", "--require", "gpu=1")
	f.Exec(kept, "--platform", "gpu=1,ISA="+isa(t), "--", "/bin/echo", "done").Expect(0, "done\n")
	waits := f.Exec(kept, "--", "/bin/echo", "never")
	f.Eventually("what does not ask for a GPU has no worker", func() bool {
		return strings.Contains(f.Verb(kept, "queue"), "nearest are 1 with {gpu=1}, for which the action would have to ask for gpu=1")
	})
	waits.Kill()
	farm.Drain()
}

func isa(t *testing.T) string {
	t.Helper()
	names := map[string]string{"amd64": "X86-64", "arm64": "arm-a64"}
	if names[runtime.GOARCH] == "" {
		t.Fatalf("the test knows no name for %s", runtime.GOARCH)
	}
	return names[runtime.GOARCH]
}
