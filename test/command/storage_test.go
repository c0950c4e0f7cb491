package command

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestRemoteStorage has a scheduler without storage: clients and workers use another server's.
func TestRemoteStorage(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	store, storage := f.Scheduler("--storage", "dir:"+filepath.Join(f.Dir, "storage"), "--cache-writes", "clients")
	scheduler, address := f.Scheduler("--storage", "grpc://"+storage)
	worker := f.Worker("worker", address, storage)
	f.Write("in/text", "hello\n")
	conn := &programs.SplitConn{Execution: f.Dial(address), Storage: f.Dial(storage)}
	inputs, err := client.Scan(f.Context(), digest.SHA256, []client.Mount{{Dir: filepath.Join(f.Dir, "in")}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, cached := range []bool{false, true} {
		outcome, err := client.Execute(f.Context(), conn, client.Request{Inputs: inputs, Command: &repb.Command{
			Arguments: []string{"/bin/sh", "-c", "cat text; cp text copy"}, OutputPaths: []string{"copy"},
		}})
		if err != nil || outcome.Status != nil {
			f.Fatalf("execute: %v, %v", err, outcome)
		}
		result := outcome.Result
		stored := casclient.New(conn, casclient.Options{})
		stdout, err := client.Output(f.Context(), stored, digest.SHA256, result.GetStdoutRaw(), result.GetStdoutDigest())
		if err != nil || string(stdout) != "hello\n" || result.GetExitCode() != 0 || outcome.Cached != cached {
			f.Errorf("standard output %q, %v, exit code %d, from the cache: %v, want %v",
				stdout, err, result.GetExitCode(), outcome.Cached, cached)
		}
		if cached && outcome.UploadedBlobs > 0 {
			f.Errorf("%d blobs uploaded again", outcome.UploadedBlobs)
		}
		got := filepath.Join(f.Dir, fmt.Sprint("got", cached))
		if err := client.Download(f.Context(), stored, digest.SHA256, result, got); err != nil {
			f.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(got, "copy")); string(text) != "hello\n" {
			f.Errorf("output %q, %v", text, err)
		}
	}
	execElsewhere(f, address, storage)
	worker.Drain()
	scheduler.Drain()
	store.Drain()
}

// execElsewhere runs a command with forerunner exec, which needs the address of the storage.
func execElsewhere(f *programs.Test, scheduler, storage string) {
	f.Helper()
	run := func(args ...string) *programs.Process {
		command := []string{"--input", "in", "--output", "copy", "--download", "downloaded", "--", "/bin/sh", "-c", "cat text; cp text copy # exec"}
		return f.Exec(scheduler, append(args, command...)...)
	}
	run().Expect(1, "", "Unimplemented", "give its address with --storage")
	run("--storage", storage).Expect(0, "hello\n", "done: ran for")
	if text, err := os.ReadFile(filepath.Join(f.Dir, "downloaded", "copy")); string(text) != "hello\n" {
		f.Errorf("output %q, %v", text, err)
	}
}
