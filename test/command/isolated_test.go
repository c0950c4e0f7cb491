package command

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestIsolatedContent has a scheduler and a worker isolate content, and a farm in one process whose
// worker has no store of its own.
func TestIsolatedContent(t *testing.T) {
	t.Parallel()
	t.Run("separate", func(t *testing.T) {
		t.Parallel()
		f := programs.New(t, programs.OwnSandbox)
		scheduler, address := f.Scheduler("--data", filepath.Join(f.Dir, "scheduler"), "--isolate-content")
		worker := f.Worker("worker", address, address)
		isolates(t, f, address)
		worker.Drain()
		scheduler.Drain()
	})
	t.Run("up", func(t *testing.T) {
		t.Parallel()
		f := programs.New(t, programs.OwnSandbox)
		farm, address := f.Up(filepath.Join(f.Dir, "data"), "--isolate-content")
		isolates(t, f, strings.TrimPrefix(address, "grpc://"))
		farm.Drain()
	})
}

// isolates runs an action for one instance name, and then for another. Its inputs and outputs must
// exist for exactly the names for which it has run.
func isolates(t *testing.T, f *programs.Test, address string) {
	t.Helper()
	storage := repb.NewContentAddressableStorageClient(f.Dial("grpc://" + address))
	text, made := "a secret\n", "A SECRET\n"
	f.Write("in/text", text)
	run := func(instance string) {
		p := f.Exec("grpc://"+address, "--instance", instance, "--input", "in", "--output", "out", "--download", instance+"-got",
			"--", "/bin/sh", "-c", "tr a-z A-Z <text >out")
		if code := p.Wait(); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", instance, code, &p.Stderr)
		}
	}
	expect := func(instance string, there bool) {
		t.Helper()
		for _, blob := range []string{text, made} {
			d := &repb.Digest{Hash: fmt.Sprintf("%x", sha256.Sum256([]byte(blob))), SizeBytes: int64(len(blob))}
			missing, err := storage.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{InstanceName: instance, BlobDigests: []*repb.Digest{d}})
			if err != nil {
				t.Fatal(err)
			}
			read, err := storage.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{InstanceName: instance, Digests: []*repb.Digest{d}})
			if err != nil {
				t.Fatal(err)
			}
			code := codes.Code(read.GetResponses()[0].GetStatus().GetCode())
			if len(missing.GetMissingBlobDigests()) == 0 != there || (code == codes.OK) != there || !there && code != codes.NotFound {
				t.Errorf("%q for %s: missing %v, read as %v; there: %t", blob, instance, missing.GetMissingBlobDigests(), code, there)
			}
		}
	}
	run("x")
	expect("x", true)
	expect("y", false)
	run("y")
	expect("y", true)
	expect("z", false)
}
