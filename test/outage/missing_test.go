package outage

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

// testMissingBlobs deletes every blob of the storage while a real build runs: one action
// is at its command and has read none of its own inputs yet, the others wait. All of them lack
// what they need, Bazel is told, uploads it again, and the build succeeds.
func testMissingBlobs(f *programs.Test, c *bazel.Client) {
	const actions, sources = 4, 3
	c.WritePackage(f.T, "missing", missing(f.Dir, actions, sources))
	data := filepath.Join(f.Dir, "scheduler")
	scheduler, listen := f.Scheduler("--data", data)
	worker := f.With("FORERUNNER_PREFETCH=false").Worker("worker", listen, listen, "--slots", "1")
	built := c.With("--remote_executor=grpc://"+listen).Start(f.T, "build", "//missing:all")

	f.Eventually("one runs", func() bool { return f.Exists("starts") })
	f.Eventually("the others wait", func() bool {
		return strings.Count(f.Verb(listen, "queue", "operations", "stage=queued"), "\n") == actions // and a header
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
		f.Fatalf("deleted %d blobs: %v", deleted, err)
	}
	f.Write("open", "")
	r := <-built
	if r.ExitCode != 0 {
		f.Errorf("bazel: exit code %d\n%s", r.ExitCode, programs.Tail(r.Output, 50))
	}
	for i := range actions {
		want := ""
		for j := range sources {
			want += fmt.Sprintf("source %d of %d\n", j, i)
		}
		bazel.ExpectFile(f.T, c.Workspace(), fmt.Sprintf("missing/action%d.txt", i), want)
	}
	for _, spawn := range r.Spawns {
		if !strings.HasPrefix(spawn.Runner, "remote") {
			f.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
		}
	}
	if log := worker.Stderr.String(); !strings.Contains(log, "FailedPrecondition") {
		f.Errorf("no action of the worker lacked anything:\n%s", programs.Tail(log, 50))
	}
	worker.Drain()
	scheduler.Drain()
}

// missing is a package whose actions say that they start, wait for a file, and only then read their
// sources.
func missing(dir string, actions, sources int) map[string]string {
	files := map[string]string{}
	for i := range actions {
		var names []string
		for j := range sources {
			name := fmt.Sprintf("source%d.%d", i, j)
			names = append(names, fmt.Sprintf("%q", name))
			files[name] = fmt.Sprintf("source %d of %d\n", j, i)
		}
		files["BUILD"] += fmt.Sprintf(`genrule(name = "action%d", srcs = [%s], outs = ["action%[1]d.txt"], cmd = """
echo %[1]d >> %[3]s/starts
until [ -e %[3]s/open ]; do sleep 0.05; done
cat $(SRCS) > $@
""")
`, i, strings.Join(names, ", "), dir)
	}
	return files
}
