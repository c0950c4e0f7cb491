package sizes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestSizes has workers of class 1 and 4; the latter has four times as much. Actions of several
// kinds must find their class, also after a restart of the scheduler. "make test-sizes" adds a kind
// for which the machine needs two idle CPUs.
func TestSizes(t *testing.T) {
	f := programs.New(t, programs.OwnSandbox)
	listen := freeport.Address(f.T)
	serve := func() *programs.Process {
		p, _ := f.Scheduler("--data", filepath.Join(f.Dir, "data"), "--listen", listen)
		return p
	}
	scheduler := serve()
	workers := []*programs.Process{
		f.With("FORERUNNER_SLOT_CPUS=0.5", "FORERUNNER_SLOT_MEMORY=64M").Worker("small", listen, listen, "--size-class", "1", "--slots", "1"),
		f.With("FORERUNNER_SLOT_CPUS=2", "FORERUNNER_SLOT_MEMORY=256M").Worker("large", listen, listen, "--size-class", "4", "--slots", "1"),
	}
	c := &sizesClient{Test: f, conn: f.Dial(listen)}

	want := map[string]uint32{}
	burn := fmt.Sprintf("burn() { i=0; while [ $i -lt $(($1*%d)) ]; do i=$((i+1)); done; }; ", loopsPerSecond(f)/10)
	// A second on one CPU, known of a run on the larger worker: the smaller one will do.
	serial := c.variant(burn+"burn 3; sleep 0.7", func(p *runs.Placement) bool { return p.GetSizeClass() == 4 })
	want[serial] = 1
	// More memory than the smaller worker has, found out there.
	memory := c.variant("head -c 120M /dev/zero | tail -c 120M | wc -c", func(p *runs.Placement) bool { return p.GetAttempt() == 2 })
	want[memory] = 4
	if os.Getenv("FORERUNNER_TEST_SIZES") == "all" {
		// Four concurrent compilers, as with make -j. This action runs on both classes.
		parallel := fmt.Sprintf("for n in 1 2 3 4; do (for i in $(seq %d); do echo 'int f(int x) { return x * x; }' |"+
			" gcc -O2 -c -x c -o $n.o - || exit 1; done; touch $n.done) & done; wait; ls 1.done 2.done 3.done 4.done",
			compilesPerSecond(f)*9/10)
		c.settles(parallel, 4)
		want[parallel] = 4
	}
	known := map[string]string{}
	for script, class := range want {
		c.expect(script, class)
		c.expect(script, class)
		known[script] = f.Verb(listen, "stats", c.action(script).String())
	}
	scheduler.Drain()
	scheduler = serve()
	f.Eventually("both workers are back", func() bool {
		return strings.Count(f.Verb(listen, "workers", "list"), "idle") >= len(workers)
	})
	for script, class := range want {
		if got := f.Verb(listen, "stats", c.action(script).String()); got != known[script] {
			f.Errorf("before the restart\n%safter it\n%s", known[script], got)
		}
		c.expect(script, class)
	}
	for _, w := range workers {
		w.Drain()
	}
	scheduler.Drain()
}

// loopsPerSecond is how often a shell counts in a second of CPU time.
func loopsPerSecond(f *programs.Test) int {
	f.Helper()
	const loops = 300_000
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", loops))
	if err := cmd.Run(); err != nil {
		f.Fatal(err)
	}
	return int(loops / cmd.ProcessState.UserTime().Seconds())
}

// compilesPerSecond is how many small files gcc compiles in a second of CPU time.
func compilesPerSecond(f *programs.Test) int {
	f.Helper()
	const times = 20
	var spent time.Duration
	for range times {
		cmd := exec.Command("gcc", "-O2", "-c", "-x", "c", "-o", filepath.Join(f.Dir, "f.o"), "-")
		cmd.Stdin = strings.NewReader("int f(int x) { return x * x; }\n")
		if err := cmd.Run(); err != nil {
			f.Fatal(err)
		}
		spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return int(times / spent.Seconds())
}

// A sizesClient executes shell scripts, each as an action that no cache has.
type sizesClient struct {
	*programs.Test
	conn *grpc.ClientConn
}

// action uploads what executes a script.
func (c *sizesClient) action(script string) digest.Digest {
	c.Helper()
	var blobs []*repb.BatchUpdateBlobsRequest_Request
	put := func(m proto.Message) digest.Digest {
		d, b, err := digest.OfMessage(digest.SHA256, m)
		if err != nil {
			c.Fatal(err)
		}
		blobs = append(blobs, &repb.BatchUpdateBlobsRequest_Request{Digest: d.Proto(), Data: b})
		return d
	}
	command := put(&repb.Command{
		Arguments:            []string{"/bin/sh", "-c", script},
		EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: "/usr/local/bin:/usr/bin:/bin"}},
	})
	action := put(&repb.Action{
		CommandDigest: command.Proto(), InputRootDigest: put(&repb.Directory{}).Proto(), DoNotCache: true,
	})
	_, err := repb.NewContentAddressableStorageClient(c.conn).BatchUpdateBlobs(c.Context(), &repb.BatchUpdateBlobsRequest{Requests: blobs})
	if err != nil {
		c.Fatal(err)
	}
	return action
}

// run executes a script, which must succeed, and returns where it ran. Each script is a kind of its
// own: other scripts do not affect where it starts.
func (c *sizesClient) run(script string) *runs.Placement {
	c.Helper()
	kind, err := proto.Marshal(&repb.RequestMetadata{ActionMnemonic: script})
	if err != nil {
		c.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(c.Context(), "build.bazel.remote.execution.v2.requestmetadata-bin", string(kind))
	stream, err := repb.NewExecutionClient(c.conn).Execute(ctx, &repb.ExecuteRequest{ActionDigest: c.action(script).Proto()})
	if err != nil {
		c.Fatal(err)
	}
	for {
		op, err := stream.Recv()
		if err != nil {
			c.Fatal(err)
		}
		if !op.GetDone() {
			continue
		}
		var resp repb.ExecuteResponse
		if err := op.GetResponse().UnmarshalTo(&resp); err != nil {
			c.Fatal(err)
		}
		if resp.GetStatus().GetCode() != 0 || resp.GetResult().GetExitCode() != 0 {
			c.Fatalf("%s: %v", script, &resp)
		}
		placement := &runs.Placement{}
		for _, packed := range resp.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
			if packed.MessageIs(placement) {
				_ = packed.UnmarshalTo(placement)
			}
		}
		took := resp.GetResult().GetExecutionMetadata().GetVirtualExecutionDuration().AsDuration()
		c.Logf("class %d, attempt %d, %s: %s", placement.GetSizeClass(), placement.GetAttempt(),
			took.Round(time.Millisecond), placement.GetReason())
		if noted := strings.Contains(resp.GetMessage(), "on size class"); noted != (placement.GetAttempt() == 2) {
			c.Errorf("%s: attempt %d, message %q", script, placement.GetAttempt(), resp.GetMessage())
		}
		return placement
	}
}

// expect executes a script that has to start on a class and to succeed there.
func (c *sizesClient) expect(script string, class uint32) {
	c.Helper()
	if p := c.run(script); p.GetSizeClass() != class || p.GetAttempt() != 1 {
		c.Errorf("%s: %v, want the first attempt on class %d", script, p, class)
	}
}

// settles executes a script until it starts on a class because of known runs, not by chance.
func (c *sizesClient) settles(script string, class uint32) {
	c.Helper()
	const times = 12
	for range times {
		if p := c.run(script); p.GetSizeClass() == class && strings.HasPrefix(p.GetReason(), "least") {
			return
		}
	}
	c.Errorf("%s has not settled on class %d in %d runs", script, class, times)
}

// variant executes variants of a script until one runs as wanted, and returns that one. Chance
// decides where an unknown action starts.
func (c *sizesClient) variant(script string, wanted func(*runs.Placement) bool) string {
	c.Helper()
	const variants = 20
	for n := range variants {
		if v := fmt.Sprintf("%s # %d", script, n); wanted(c.run(v)) {
			return v
		}
	}
	c.Fatalf("%s: none of %d variants ran as wanted", script, variants)
	return ""
}
