package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm"
)

// scheduler starts forerunner-scheduler and returns its address.
func (f *farmTest) scheduler(args ...string) (*process, string) {
	f.Helper()
	p := f.start(append([]string{"forerunner-scheduler", "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.waitFor(&p.stdout, servesLine)[1]
}

// worker starts forerunner-worker with a data folder of that name.
func (f *farmTest) worker(name, scheduler, storage string, args ...string) *process {
	f.Helper()
	data := filepath.Join(f.dir, name)
	f.Cleanup(func() { expectNoMounts(f.T, data) })
	p := f.start(append([]string{
		"forerunner-worker", "--data", data, "--id", "name=" + name,
		"--scheduler", "grpc://" + scheduler, "--storage", "grpc://" + storage,
	}, args...)...)
	p.waitFor(&p.stderr, readyLine)
	return p
}

// testKilledWorker runs scheduler and workers apart. The worker that has the action dies, another
// one ends it, and the client sees neither. The scheduler waits ten seconds for the dead one.
func testKilledWorker(f *farmTest) {
	scheduler, address := f.scheduler("--storage", "dir:"+filepath.Join(f.dir, "storage"))
	first := f.worker("first", address, address)
	was := traceOf(f.T, first)
	f.write("in/text", "hello\n")
	started, hang := filepath.Join(f.dir, "started"), fmt.Sprintf("5151.%d", os.Getpid())
	client := f.execRemote(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && cat text && echo made >out && exit 5; touch %[1]s; sleep %s", started, hang))
	f.waitForFile(started)
	second := f.worker("second", address, address)

	first.kill()
	f.expectNoLaunchers(was)
	expectNoProcess(f.T, "sleep", hang)
	client.expect(5, "hello\n")
	if got, err := os.ReadFile(filepath.Join(f.dir, "out")); string(got) != "made\n" {
		f.Errorf("output %q, %v", got, err)
	}
	// The dead one's successor cleans up.
	first = f.worker("first", address, address)
	f.expectNoRoots(filepath.Join(f.dir, "first"))
	for _, worker := range []*process{first, second} {
		now := traceOf(f.T, worker)
		worker.drain()
		f.expectNoLaunchers(now)
		f.expectNoGroups(now)
	}
	f.expectNoGroups(was)
	scheduler.drain()
}

// testRestartedWorker kills a worker that comes back as the same: it says that it has nothing, so
// its action starts anew without a wait for the dead.
func testRestartedWorker(f *farmTest) {
	scheduler, address := f.scheduler("--storage", "dir:"+filepath.Join(f.dir, "storage"))
	worker := f.worker("worker", address, address)
	started := filepath.Join(f.dir, "started")
	client := f.execRemote(address, "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && echo again && exit; touch %[1]s; sleep 60", started))
	f.waitForFile(started)
	worker.kill()
	worker = f.worker("worker", address, address)
	client.expect(0, "again\n")
	worker.drain()
	scheduler.drain()
}

// testRemoteStorage has a scheduler without storage: clients and workers use another server's.
func testRemoteStorage(f *farmTest) {
	store, storage := f.scheduler("--storage", "dir:"+filepath.Join(f.dir, "storage"), "--cache-writes", "clients")
	scheduler, address := f.scheduler("--storage", "grpc://"+storage)
	worker := f.worker("worker", address, storage)
	f.write("in/text", "hello\n")
	conn := &splitConn{execution: f.dial(address), storage: f.dial(storage)}
	inputs, err := client.Scan(f.Context(), digest.SHA256, []client.Mount{{Dir: filepath.Join(f.dir, "in")}}, nil)
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
		stored := cas.NewClient(conn, cas.ClientOptions{})
		stdout, err := client.Output(f.Context(), stored, digest.SHA256, result.GetStdoutRaw(), result.GetStdoutDigest())
		if err != nil || string(stdout) != "hello\n" || result.GetExitCode() != 0 || outcome.Cached != cached {
			f.Errorf("standard output %q, %v, exit code %d, from the cache: %v, want %v",
				stdout, err, result.GetExitCode(), outcome.Cached, cached)
		}
		if cached && outcome.UploadedBlobs > 0 {
			f.Errorf("%d blobs uploaded again", outcome.UploadedBlobs)
		}
		got := filepath.Join(f.dir, fmt.Sprint("got", cached))
		if err := client.Download(f.Context(), stored, digest.SHA256, result, got); err != nil {
			f.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(got, "copy")); string(text) != "hello\n" {
			f.Errorf("output %q, %v", text, err)
		}
	}
	worker.drain()
	scheduler.drain()
	store.drain()
}

// A splitConn sends executions to one server and everything else to another.
type splitConn struct{ execution, storage *grpc.ClientConn }

func (c *splitConn) of(method string) *grpc.ClientConn {
	for _, service := range []string{repb.Execution_ServiceDesc.ServiceName, repb.Capabilities_ServiceDesc.ServiceName} {
		if strings.HasPrefix(method, "/"+service+"/") {
			return c.execution
		}
	}
	return c.storage
}

func (c *splitConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.of(method).Invoke(ctx, method, args, reply, opts...)
}

func (c *splitConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.of(method).NewStream(ctx, d, method, opts...)
}

func (f *farmTest) dial(address string) *grpc.ClientConn {
	f.Helper()
	conn, err := farm.Dial(address)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	return conn
}

// uploadHalf sends the first half of a blob and leaves it at that.
func (f *farmTest) uploadHalf(address string, d digest.Digest, text string) {
	f.Helper()
	stream, err := bytestream.NewByteStreamClient(f.dial(address)).Write(f.Context())
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
