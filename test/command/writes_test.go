package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestCacheWrites has clients, and a command on the worker, write to the action cache.
func TestCacheWrites(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	for _, c := range []struct {
		name  string
		apart bool
		args  []string
		want  codes.Code
	}{
		{"in one process", false, nil, codes.PermissionDenied},
		{"apart", true, nil, codes.PermissionDenied},
		{"in one process, for clients", false, []string{"--cache-writes", "clients"}, codes.OK},
		{"apart, for clients", true, []string{"--cache-writes=clients"}, codes.OK},
	} {
		f.Run(c.name, func(t *testing.T) {
			f := programs.New(t, programs.OwnSandbox)
			var all []*programs.Process
			var address string
			if c.apart {
				scheduler, at := f.Scheduler(append([]string{"--data", filepath.Join(f.Dir, "scheduler")}, c.args...)...)
				all, address = []*programs.Process{f.Worker("worker", at, at), scheduler}, at
			} else {
				farm, at := f.Up(filepath.Join(f.Dir, "data"), c.args...)
				all, address = []*programs.Process{farm}, at
			}
			expectCacheWrites(f, address, c.want)
			for _, p := range all {
				p.Drain()
			}
		})
	}
}

// expectCacheWrites checks that a farm caches the results of its worker, and gives this answer to
// clients that write results themselves.
func expectCacheWrites(f *programs.Test, address string, want codes.Code) {
	f.Helper()
	f.Write("in/text", "hello\n")
	run := func(args ...string) *programs.Process {
		return f.Exec(address, append([]string{"--input", "in", "--output", "out", "--"}, args...)...)
	}
	run("/bin/cp", "text", "out").Expect(0, "", "done: ran for")
	run("/bin/cp", "text", "out").Expect(0, "", "!ran for")

	err := writeResult(f.Context(), f.Dial(address), "outside", &repb.ActionResult{})
	if status.Code(err) != want {
		f.Errorf("a client writes a result: %v, want %s", err, want)
	}
	err = writeResult(f.Context(), f.Dial(address), "failure", &repb.ActionResult{ExitCode: 1})
	if code := status.Code(err); code != want && (want != codes.OK || code != codes.InvalidArgument) {
		f.Errorf("a client writes a failure: %v", err)
	}
	if err := keepRun(f.Context(), f.Dial(address), "outside"); status.Code(err) != want {
		f.Errorf("a client tells workers of a run: %v, want %s", err, want)
	}
	capabilities, err := repb.NewCapabilitiesClient(f.Dial(address)).GetCapabilities(f.Context(), &repb.GetCapabilitiesRequest{})
	if enabled := capabilities.GetCacheCapabilities().GetActionCacheUpdateCapabilities().GetUpdateEnabled(); err != nil || enabled != (want == codes.OK) {
		f.Errorf("update_enabled %t, %v", enabled, err)
	}

	copyTest(f, "in/program")
	p := f.Exec(address, "--input", "in", "--platform", "network=on", "--env", writesAtVariable+"="+address,
		"--env", "GORACE="+os.Getenv("GORACE"), "--", "./program", "-test.run=^TestWriteResult$")
	if code := p.Wait(); code != 0 {
		f.Fatalf("the command on the worker: exit code %d\n%s%s", code, &p.Stdout, &p.Stderr)
	}
	if said := fmt.Sprintf("it said %s and %s\n", want, want); !strings.Contains(p.Stdout.String(), said) {
		f.Errorf("a command writes a result and tells workers of a run: %q, want %q", p.Stdout.String(), said)
	}
	d, _, _, err := poisoned("inside")
	if err != nil {
		f.Fatal(err)
	}
	_, err = repb.NewActionCacheClient(f.Dial(address)).GetActionResult(f.Context(), &repb.GetActionResultRequest{ActionDigest: d.Proto()})
	if (err == nil) != (want == codes.OK) {
		f.Errorf("what the command wrote: %v", err)
	}
}

// copyTest makes a copy of this test's own program.
func copyTest(f *programs.Test, name string) {
	f.Helper()
	program, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(filepath.Join(f.Dir, name), content, 0o755)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// writesAtVariable is set in the environment of the test when it is the command of an action.
const writesAtVariable = "FORERUNNER_TEST_WRITES_AT"

// TestWriteResult runs on a worker, for TestCacheWrites.
func TestWriteResult(t *testing.T) {
	address := os.Getenv(writesAtVariable)
	if address == "" {
		t.Skip("it is no command of an action")
	}
	conn, err := dial.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Printf("it said %s and %s\n", status.Code(writeResult(t.Context(), conn, "inside", &repb.ActionResult{})),
		status.Code(keepRun(t.Context(), conn, "inside")))
}

// poisoned returns an action for which a client writes a false result.
func poisoned(name string) (action digest.Digest, encoded, command []byte, err error) {
	d, command, err := digest.OfMessage(digest.SHA256, &repb.Command{Arguments: []string{name}})
	if err != nil {
		return action, nil, nil, err
	}
	encoded, err = proto.Marshal(&repb.Action{CommandDigest: d.Proto()})
	return digest.Of(digest.SHA256, encoded), encoded, command, err
}

// writeResult uploads an action and writes a result of it, as a client could.
func writeResult(ctx context.Context, conn *grpc.ClientConn, name string, r *repb.ActionResult) error {
	d, action, command, err := poisoned(name)
	if err != nil {
		return err
	}
	blobs := []casclient.Blob{casclient.BytesBlob(d, action), casclient.BytesBlob(digest.Of(digest.SHA256, command), command)}
	if err := casclient.New(conn, casclient.Options{}).Upload(ctx, blobs, nil); err != nil {
		return err
	}
	_, err = repb.NewActionCacheClient(conn).UpdateActionResult(ctx, &repb.UpdateActionResultRequest{ActionDigest: d.Proto(), ActionResult: r})
	return err
}

// keepRun tells workers of a run of an action that writeResult has uploaded. The
// call must be refused, like a request for a run.
func keepRun(ctx context.Context, conn *grpc.ClientConn, name string) error {
	d, _, _, err := poisoned(name)
	if err != nil {
		return err
	}
	accounts := reuse.NewAccountsClient(conn)
	_, found := accounts.Find(ctx, &reuse.FindRequest{ActionDigest: d.Proto(), ReducedActionDigest: d.Proto(), Circumstances: make([]byte, 32)})
	_, err = accounts.Keep(ctx, &reuse.KeepRequest{
		ActionDigest: d.Proto(), Circumstances: make([]byte, 32), Run: &reuse.Run{Action: d.Proto(), Root: &reuse.Directory{}},
	})
	if status.Code(err) != status.Code(found) {
		return fmt.Errorf("to keep a run: %w; to find one: %w", err, found)
	}
	return err
}
