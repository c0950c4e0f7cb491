package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestKilledWorker runs scheduler and workers apart. The worker that has the action dies, another
// one ends it, and the client sees neither. The scheduler waits ten seconds for the dead one.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	scheduler, address := f.Scheduler("--storage", "dir:"+filepath.Join(f.Dir, "storage"))
	first := f.Worker("first", address, address)
	was := programs.TraceOf(f.T, first)
	f.Write("in/text", "hello\n")
	started, hang := filepath.Join(f.Dir, "started"), fmt.Sprintf("5151.%d", os.Getpid())
	client := f.Exec(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && cat text && echo made >out && exit 5; touch %[1]s; sleep %s", started, hang))
	f.WaitForFile(started)
	second := f.Worker("second", address, address)

	first.Kill()
	f.ExpectNoLaunchers(was)
	programs.ExpectNoProcess(f.T, "sleep", hang)
	client.Expect(5, "hello\n")
	if got, err := os.ReadFile(filepath.Join(f.Dir, "out")); string(got) != "made\n" {
		f.Errorf("output %q, %v", got, err)
	}
	// The dead one's successor cleans up.
	first = f.Worker("first", address, address)
	f.ExpectNoRoots(filepath.Join(f.Dir, "first"))
	for _, worker := range []*programs.Process{first, second} {
		now := programs.TraceOf(f.T, worker)
		worker.Drain()
		f.ExpectNoLaunchers(now)
		f.ExpectNoGroups(now)
	}
	f.ExpectNoGroups(was)
	scheduler.Drain()
}

// TestRestartedWorker kills a worker that returns with the same identity and reports that it has no
// action. Its action must start again at once.
func TestRestartedWorker(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	scheduler, address := f.Scheduler("--storage", "dir:"+filepath.Join(f.Dir, "storage"))
	worker := f.Worker("worker", address, address)
	started := filepath.Join(f.Dir, "started")
	client := f.Exec(address, "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && echo again && exit; touch %[1]s; sleep 60", started))
	f.WaitForFile(started)
	worker.Kill()
	worker = f.Worker("worker", address, address)
	client.Expect(0, "again\n")
	worker.Drain()
	scheduler.Drain()
}

// uploadHalf sends the first half of a blob and leaves it at that.
func uploadHalf(f *programs.Test, address string, d digest.Digest, text string) {
	f.Helper()
	stream, err := bytestream.NewByteStreamClient(f.Dial(address)).Write(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	err = stream.Send(&bytestream.WriteRequest{
		ResourceName: "uploads/5b1f6ad5-1c1a-4b49-b3a5-3d0a86a7b6c7/blobs/" + d.String(),
		Data:         []byte(text[:len(text)/2]),
	})
	if err != nil {
		f.Fatal(err)
	}
}
