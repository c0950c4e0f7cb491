package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBazelThroughMissingBlobs deletes every blob of the storage while a real build runs: one action
// is at its command and has read none of its own inputs yet, the others wait. All of them lack
// what they need, Bazel is told, uploads it again, and the build succeeds.
func TestBazelThroughMissingBlobs(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	bazel := debianBazel(t)
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: shareFolder}
	const actions, sources = 4, 3
	workspace := missingWorkspace(f, actions, sources)
	data := filepath.Join(f.dir, "scheduler")
	scheduler, listen := f.scheduler("--data", data)
	worker := f.worker("worker", listen, listen, "--slots", "1", "--prefetch=false")
	c := newBazelClient(t, bazel, workspace, "--config=remote", "--jobs=20", "--remote_retries=20", "--remote_executor=grpc://"+listen)
	built := c.start(t, "build", "//missing:all")

	f.eventually("one runs", func() bool { return f.exists("starts") })
	f.eventually("the others wait", func() bool {
		return strings.Count(f.verb(listen, "queue", "operations", "stage=queued"), "\n") == actions // and a header
	})
	deleted := 0
	err := filepath.WalkDir(filepath.Join(data, "storage", "cas"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		deleted++
		return os.Remove(path)
	})
	if err != nil || deleted < actions*sources {
		t.Fatalf("deleted %d blobs: %v", deleted, err)
	}
	f.write("open", "")
	r := <-built
	if r.exitCode != 0 {
		t.Errorf("bazel: exit code %d\n%s", r.exitCode, tail(r.output, 50))
	}
	for i := range actions {
		want := ""
		for j := range sources {
			want += fmt.Sprintf("source %d of %d\n", j, i)
		}
		expectFile(t, workspace, fmt.Sprintf("missing/action%d.txt", i), want)
	}
	for _, spawn := range r.spawns {
		if !strings.HasPrefix(spawn.Runner, "remote") {
			t.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
		}
	}
	if log := worker.stderr.String(); !strings.Contains(log, "FailedPrecondition") {
		t.Errorf("no action of the worker lacked anything:\n%s", tail(log, 50))
	}
	c.shutdown(t)
	worker.drain()
	scheduler.drain()
}

// missingWorkspace makes a workspace whose actions say that they start, wait for a file, and only then
// read their sources.
func missingWorkspace(f *farmTest, actions, sources int) string {
	f.Helper()
	workspace := f.TempDir()
	if err := os.CopyFS(workspace, os.DirFS("../testdata/bazel")); err != nil {
		f.Fatalf("copy workspace: %v", err)
	}
	dir := filepath.Join(workspace, "missing")
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	write := func(name, text string) {
		f.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	var build strings.Builder
	for i := range actions {
		var names []string
		for j := range sources {
			name := fmt.Sprintf("source%d.%d", i, j)
			names = append(names, fmt.Sprintf("%q", name))
			write(name, fmt.Sprintf("source %d of %d\n", j, i))
		}
		fmt.Fprintf(&build, `genrule(name = "action%d", srcs = [%s], outs = ["action%[1]d.txt"], cmd = """
echo %[1]d >> %[3]s/starts
until [ -e %[3]s/open ]; do sleep 0.05; done
cat $(SRCS) > $@
""")
`, i, strings.Join(names, ", "), f.dir)
	}
	write("BUILD", build.String())
	return workspace
}
