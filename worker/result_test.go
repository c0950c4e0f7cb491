package worker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
)

func digestOf(t *testing.T, m proto.Message) digest.Digest {
	t.Helper()
	d, _, err := digest.OfMessage(digest.SHA256, m)
	check(t, err)
	return d
}

// inputUse returns what a response says of the use of its input root.
func inputUse(t *testing.T, r *repb.ExecuteResponse) *actionstats.InputRoot {
	t.Helper()
	for _, extra := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		use := &actionstats.InputRoot{}
		if extra.MessageIs(use) {
			check(t, extra.UnmarshalTo(use))
			return use
		}
	}
	t.Fatal("the response does not tell the use of the input root")
	return nil
}

func (f *farm) cached(t *testing.T, j *job) *repb.ActionResult {
	t.Helper()
	result, err := f.actions.Get(t.Context(), "", j.digest)
	if errors.Is(err, cas.ErrNotFound) {
		return nil
	}
	check(t, err)
	return result
}

func (f *farm) assertNotCached(t *testing.T, j *job) {
	t.Helper()
	if result := f.cached(t, j); result != nil {
		t.Errorf("was written to the action cache: %v", result)
	}
}

func TestActionCache(t *testing.T) {
	f := newFarm(t)
	for _, c := range []struct {
		name   string
		spec   spec
		code   codes.Code
		exits  []int32
		cached bool
	}{
		{"success", spec{shell: "echo fine"}, codes.OK, []int32{0}, true},
		{"exit code", spec{shell: "exit 1"}, codes.OK, []int32{1}, false},
		{"do not cache", spec{shell: "exit 0", doNotCache: true}, codes.OK, []int32{0}, false},
		{"signal", spec{shell: "kill -9 $$"}, codes.OK, []int32{137}, false},
		// SIGKILL: the time was over before there was a command to be asked.
		{"timeout", spec{shell: "exec sleep 1000", timeout: 50 * time.Millisecond}, codes.DeadlineExceeded, []int32{143, 137}, false},
		{"missing input", spec{inputs: tree{"a": absent("gone")}, shell: "cat a; exit 0"}, codes.FailedPrecondition, []int32{0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := f.start(t, c.spec)
			r := j.result(t)
			assertCode(t, r, c.code, "")
			if got := r.GetResult().GetExitCode(); !slices.Contains(c.exits, got) {
				t.Errorf("exit code %d, want %d", got, c.exits)
			}
			result := f.cached(t, j)
			if got := result != nil; got != c.cached {
				t.Fatalf("in the action cache: %v, want %v", got, c.cached)
			}
			if c.cached && f.read(t, result.GetStdoutDigest()) != "fine\n" {
				t.Errorf("cached result is %v", result)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	f := newFarm(t)
	mark := newMark("timeout")
	var stdout string
	var files []*repb.OutputFile
	// On a busy machine the first timeout may pass before the command has printed anything.
	for timeout := 500 * time.Millisecond; stdout == "" && timeout < time.Minute; timeout *= 4 {
		r := f.run(t, spec{
			shell:   "echo made > out; echo printed; setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000",
			env:     markEnv(mark),
			paths:   []string{"out"},
			timeout: timeout,
		})
		assertCode(t, r, codes.DeadlineExceeded, timeout.String())
		stdout, files = string(r.GetResult().GetStdoutRaw()), r.GetResult().GetOutputFiles()
		if marked(t, mark) {
			t.Error("a process of the command is still alive")
		}
	}
	if stdout != "printed\n" {
		t.Errorf("stdout is %q", stdout)
	}
	if len(files) != 1 || f.read(t, files[0].GetDigest()) != "made\n" {
		t.Errorf("output files are %v", files)
	}
	f.assertGood(t)
}

// The clock of the timeout stands still while the command waits for an input, but not
// for ever; and a command that waits is ended like any other.
func TestTimeoutAndStorage(t *testing.T) {
	const timeout, stall = time.Second, 2 * time.Second
	for name, sandbox := range map[string]*sandbox.Options{"none": nil, "namespaces": {}} {
		f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
			sandbox: sandbox, change: func(o *Options) { o.MaxStall = stall },
		})
		waits := func(input string) spec {
			return spec{
				inputs: tree{"input": input}, shell: "echo printed; cat input; trap '' TERM; cat input", timeout: timeout,
			}
		}
		t.Run(name+"/answers", func(t *testing.T) {
			late := digestOfBytes("late")
			release := f.reads.hold(late.Hash())
			defer release()
			j := f.start(t, waits("late"))
			for deadline := time.Now().Add(patience); f.reads.count(late) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the command does not read its input")
				}
			}
			time.Sleep(2 * timeout)
			release()
			r := j.result(t)
			assertOK(t, r)
			if got := said(r); got != "printed\nlatelate" {
				t.Errorf("said %q", got)
			}
		})
		t.Run(name+"/does not answer", func(t *testing.T) {
			defer f.reads.hold(digestOfBytes("never").Hash())()
			r := f.run(t, waits("never"))
			assertCode(t, r, codes.DeadlineExceeded, timeout.String())
			if got := said(r); got != "printed\n" {
				t.Errorf("said %q", got)
			}
			f.assertGood(t)
		})
	}
}

func TestMetadata(t *testing.T) {
	f := newFarm(t)
	j := f.start(t, spec{
		inputs: tree{"read": "12345", "unread": absent("unread")},
		shell:  "cat read > out", paths: []string{"out"},
	})
	r := j.result(t)
	assertOK(t, r)
	m := r.GetResult().GetExecutionMetadata()
	if m.GetWorker() != "host=test,position=0" {
		t.Errorf("worker is %q", m.GetWorker())
	}
	// Before, at the same instant, after.
	times := []struct {
		name string
		at   time.Time
	}{
		{"queued", m.GetQueuedTimestamp().AsTime()},
		{"worker start", m.GetWorkerStartTimestamp().AsTime()},
		{"input fetch start", m.GetInputFetchStartTimestamp().AsTime()},
		{"input fetch completed", m.GetInputFetchCompletedTimestamp().AsTime()},
		{"execution start", m.GetExecutionStartTimestamp().AsTime()},
		{"execution completed", m.GetExecutionCompletedTimestamp().AsTime()},
		{"output upload start", m.GetOutputUploadStartTimestamp().AsTime()},
		{"output upload completed", m.GetOutputUploadCompletedTimestamp().AsTime()},
		{"worker completed", m.GetWorkerCompletedTimestamp().AsTime()},
	}
	if !times[0].at.Equal(j.desired.GetQueuedTimestamp().AsTime()) {
		t.Errorf("queued at %v, not when the scheduler says", times[0].at)
	}
	for i := 1; i < len(times); i++ {
		if times[i].at.Before(times[i-1].at) {
			t.Errorf("%s is before %s", times[i].name, times[i-1].name)
		}
	}
	// Between input fetch and execution it waited for its slot.
	if !times[5].at.Equal(times[6].at) {
		t.Errorf("there is a gap between %s and %s", times[5].name, times[6].name)
	}
	if use := inputUse(t, r); use.GetFilesRead() != 1 || use.GetBytesRead() != 5 || use.GetDirectoriesRead() < 1 {
		t.Errorf("input use is %v", use)
	}
}

func TestLongStreams(t *testing.T) {
	f := newFarm(t)
	r := f.run(t, spec{shell: "head -c 100000 /dev/zero; head -c 3000000 /dev/zero >&2"})
	assertOK(t, r)
	if got := f.read(t, r.GetResult().GetStdoutDigest()); len(got) != 100_000 {
		t.Errorf("stdout has %d bytes", len(got))
	}
	stderr := f.read(t, r.GetResult().GetStderrDigest())
	if len(stderr) < 1<<20 || len(stderr) > 1<<20+200 || stderr[len(stderr)-2] != ']' {
		t.Errorf("stderr has %d bytes and ends in %q", len(stderr), stderr[len(stderr)-80:])
	}
}

// TestResultTooLargeForAMessage has a scheduler that accepts messages of 4 MiB, the default of gRPC,
// and a larger result. The client must get an error, and the position must continue.
func TestResultTooLargeForAMessage(t *testing.T) {
	f := newFarm(t)
	paths := make([]string, 1200)
	for i := range paths {
		paths[i] = strings.Repeat("./", 2000) + "link"
	}
	r := f.run(t, spec{shell: "ln -s nowhere link", paths: paths})
	assertCode(t, r, codes.FailedPrecondition, "too large")
	f.assertGood(t)
}
