package programs

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/farm/dial"
)

// Scheduler starts forerunner-scheduler and returns its address.
func (f *Test) Scheduler(args ...string) (*Process, string) {
	f.Helper()
	data, err := os.MkdirTemp(f.Dir, "scheduler-")
	if err != nil {
		f.Fatal(err)
	}
	p := f.Start(append([]string{"forerunner-scheduler", "--data", data, "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.WaitFor(&p.Stdout, ServesLine)[1]
}

// Worker starts forerunner-worker with a data folder of that name.
func (f *Test) Worker(name, scheduler, storage string, args ...string) *Process {
	f.Helper()
	data := filepath.Join(f.Dir, name)
	f.Cleanup(func() { ExpectNoMounts(f.T, data) })
	p := f.Start(append([]string{
		"forerunner-worker", "--data", data, "--id", "name=" + name,
		"--scheduler", "grpc://" + scheduler, "--storage", "grpc://" + storage,
	}, args...)...)
	p.WaitFor(&p.Stderr, ReadyLine)
	return p
}

// Verb runs a verb of an operator and returns its output.
func (f *Test) Verb(address string, args ...string) string {
	f.Helper()
	p := f.Start(append(append([]string{"forerunner"}, args...), "--remote", address)...)
	if code := p.Wait(); code != 0 {
		f.Fatalf("%s: exit code %d\n%s", args, code, &p.Stderr)
	}
	return p.Stdout.String()
}

// Dial connects to a server until the end of the test.
func (f *Test) Dial(address string) *grpc.ClientConn {
	f.Helper()
	conn, err := dial.Dial(address)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A SplitConn sends executions to one server and everything else to another.
type SplitConn struct{ Execution, Storage *grpc.ClientConn }

func (c *SplitConn) of(method string) *grpc.ClientConn {
	for _, service := range []string{repb.Execution_ServiceDesc.ServiceName, repb.Capabilities_ServiceDesc.ServiceName} {
		if strings.HasPrefix(method, "/"+service+"/") {
			return c.Execution
		}
	}
	return c.Storage
}

// Invoke implements grpc.ClientConnInterface.
func (c *SplitConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.of(method).Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *SplitConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.of(method).NewStream(ctx, d, method, opts...)
}
