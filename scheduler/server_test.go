package scheduler

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

var success = &repb.ExecuteResponse{Result: &repb.ActionResult{StdoutRaw: []byte("hello")}}

func TestActionFromStartToEnd(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("true", func(a *repb.Action, c *repb.Command) {
			a.Timeout = durationpb.New(7 * time.Minute)
			a.Platform = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OS", Value: "linux"}}}
		})
		who := &repb.RequestMetadata{ToolInvocationId: "inv", TargetId: "//x", ActionMnemonic: "M"}
		ctx := metadata.AppendToOutgoingContext(t.Context(),
			names.RequestMetadataHeader, string(must(proto.Marshal(who))),
			"traceparent", "00-aa-bb-01", "tracestate", "k=v", "authorization", "secret")
		s := f.execute(ctx, &repb.ExecuteRequest{InstanceName: "acme/web", ActionDigest: d})
		op := s.at(repb.ExecutionStage_QUEUED)
		submitted := time.Now()
		time.Sleep(20 * time.Second)

		w := f.worker("w")
		w.req.InstanceNamePrefix = "acme"
		w.req.Platform = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OS", Value: "linux"}}}
		run := w.idle()
		if !proto.Equal(run.GetActionDigest(), d) || run.GetDigestFunction() != repb.DigestFunction_SHA256 ||
			run.GetAction().GetTimeout().AsDuration() != 7*time.Minute || run.GetInstanceNameSuffix() != "web" ||
			!run.GetQueuedTimestamp().AsTime().Equal(submitted) {
			t.Errorf("assignment %v", run)
		}
		if tr := run.GetW3CTraceContext(); len(tr) != 2 || tr["traceparent"] != "00-aa-bb-01" || tr["tracestate"] != "k=v" {
			t.Errorf("trace context %v", tr)
		}
		got := &repb.RequestMetadata{}
		if aux := run.GetAuxiliaryMetadata(); len(aux) != 1 || aux[0].UnmarshalTo(got) != nil || !proto.Equal(got, who) {
			t.Errorf("auxiliary metadata %v", aux)
		}
		if resp := w.running(d); resp.GetDesiredState() != nil || !resp.GetNextSynchronizationAt().AsTime().After(time.Now()) {
			t.Errorf("a busy worker is told %v", resp)
		}
		_, meta := s.next()
		if m := meta.GetPartialExecutionMetadata(); meta.GetStage() != repb.ExecutionStage_EXECUTING ||
			m.GetWorker() != `acme/{"host":"w"}` || m.GetWorkerStartTimestamp() == nil {
			t.Errorf("while it executes: %v", meta)
		}
		if resp := w.completed(d, success); resp.GetDesiredState().GetIdle() == nil {
			t.Errorf("a worker without work is told %v", resp)
		}
		if r := s.done(); !proto.Equal(r, success) {
			t.Errorf("response %v", r)
		}
		if r := f.wait(t.Context(), op.GetName()).done(); !proto.Equal(r, success) {
			t.Errorf("waited again: %v", r)
		}
		synctest.Wait()
		logs := f.logs.FilterMessage("operation finished").All()
		if len(logs) != 1 || logs[0].ContextMap()["queued"] != 20*time.Second || logs[0].ContextMap()["invocation"] != "inv" {
			t.Errorf("logs %v", f.logs.All())
		}
	})
}

// TestFailureNamesItsPage has an action that fails, with a message of its worker, and one that does
// not.
func TestFailureNamesItsPage(t *testing.T) {
	inFarm(t, ServerOptions{Pages: "http://scheduler:8981/"}, func(t *testing.T, f *farm) {
		w := f.worker("w")
		for _, c := range []struct {
			name string
			resp *repb.ExecuteResponse
			want string
		}{
			{"fails", &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 1}, Message: "out of ink"}, "out of ink\nSee http://scheduler:8981/%s"},
			{"cannot", &repb.ExecuteResponse{Status: &spb.Status{Code: int32(codes.InvalidArgument)}}, "See http://scheduler:8981/%s"},
			{"cannot at all", &repb.ExecuteResponse{Status: &spb.Status{Code: int32(codes.InvalidArgument), Message: "no ink"}}, "See http://scheduler:8981/%s"},
			{"built", &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 1}}, "See http://scheduler:8981/%s\nThe build: http://scheduler:8981/builds/7%%2F8"},
			{"works", success, ""},
		} {
			d := f.storage.action(c.name)
			ctx := t.Context()
			if c.name == "built" {
				ctx = metadata.AppendToOutgoingContext(ctx, names.RequestMetadataHeader, string(must(proto.Marshal(&repb.RequestMetadata{ToolInvocationId: "7/8"}))))
			}
			s := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: d})
			name := s.at(repb.ExecutionStage_QUEUED).GetName()
			w.idle()
			w.completed(d, c.resp)
			want := proto.CloneOf(c.resp)
			if c.want != "" {
				want.Message = fmt.Sprintf(c.want, name)
				if want.Status != nil {
					want.Status.Message = strings.TrimSpace(want.GetStatus().GetMessage() + "\n" + want.GetMessage())
				}
			}
			if got := s.done(); !proto.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", c.name, got, want)
			}
		}
	})
}

func TestPlatformOfTheCommandWhenTheActionHasNone(t *testing.T) {
	arm := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "ISA", Value: "arm64"}}}
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("old-client", func(_ *repb.Action, c *repb.Command) {
			//lint:ignore SA1019 deprecated is what old clients send
			c.Platform = arm
		})
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		s.at(repb.ExecutionStage_QUEUED)
		w := f.worker("arm")
		w.req.Platform = arm
		run := w.idle()
		if got := run.GetAction().GetTimeout().AsDuration(); got != time.Hour {
			t.Errorf("default timeout %s", got)
		}
		w.completed(d, success)
		s.done()
	})
}

// TestTimeoutIsCut gives an action that asks for more than the maximum just that, and says so.
func TestTimeoutIsCut(t *testing.T) {
	inFarm(t, ServerOptions{Config: tuning.Config{MaxExecutionTimeout: 2 * time.Hour}}, func(t *testing.T, f *farm) {
		for asked, note := range map[time.Duration]string{
			2 * time.Hour: "",
			3 * time.Hour: "the timeout of 3h0m0s was cut to 2h0m0s, the longest that the scheduler allows",
		} {
			d := f.storage.action(asked.String(), func(a *repb.Action, _ *repb.Command) { a.Timeout = durationpb.New(asked) })
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
			s.at(repb.ExecutionStage_QUEUED)
			w := f.worker("w" + asked.String())
			if got := w.idle().GetAction().GetTimeout().AsDuration(); got != 2*time.Hour {
				t.Errorf("asked for %s, given %s", asked, got)
			}
			w.completed(d, success)
			if r := s.done(); r.GetMessage() != note || !proto.Equal(r.GetResult(), success.GetResult()) {
				t.Errorf("asked for %s: response %v", asked, r)
			}
		}
	})
}

func TestCachedResult(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("cached")
		result := &repb.ActionResult{StdoutRaw: []byte("old")}
		f.storage.results[must(digest.FromProto(digest.SHA256, d))] = result
		r := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).done()
		if !r.GetCachedResult() || !proto.Equal(r.GetResult(), result) {
			t.Errorf("response %v", r)
		}
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, SkipCacheLookup: true})
		s.at(repb.ExecutionStage_QUEUED)
		w := f.worker("w")
		run, told := w.idle(), &actionstats.Request{}
		if aux := run.GetAuxiliaryMetadata(); len(aux) != 1 || aux[0].UnmarshalTo(told) != nil || !told.GetSkipCacheLookup() {
			t.Errorf("the worker is not told that the command is to be run: %v", aux)
		}
		w.completed(d, success)
		if r := s.done(); r.GetCachedResult() {
			t.Errorf("lookup was to be skipped: %v", r)
		}
	})
}

func TestMissingBlobsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		fn      digest.Function
		subject string
	}{
		"sha256": {digest.SHA256, "blobs/"},
		"blake3": {digest.BLAKE3, "blobs/blake3/"},
	} {
		t.Run(name, func(t *testing.T) {
			inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
				want := map[string]*repb.Digest{"action": digest.Of(c.fn, []byte("nowhere")).Proto()}
				want["command"] = f.storage.putBytes(c.fn, must(proto.Marshal(&repb.Action{
					CommandDigest: want["action"], InputRootDigest: c.fn.Empty().Proto(),
				})))
				for what, d := range want {
					r := f.execute(t.Context(), &repb.ExecuteRequest{
						ActionDigest: d, DigestFunction: c.fn.Proto(),
					}).done()
					st := status.FromProto(r.GetStatus())
					wantStatus(t, st.Err(), codes.FailedPrecondition, what)
					missing := must(digest.FromProto(c.fn, want["action"])).String()
					if v := st.Details()[0].(*errdetails.PreconditionFailure).GetViolations(); len(v) != 1 ||
						v[0].GetType() != "MISSING" || v[0].GetSubject() != c.subject+missing {
						t.Errorf("%s: violations %v", what, v)
					}
				}
			})
		})
	}
}

func TestExecuteRejects(t *testing.T) {
	empty := digest.SHA256.Empty().Proto()
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		ok := f.storage.action("ok")
		for name, c := range map[string]struct {
			req  *repb.ExecuteRequest
			text string
		}{
			"no digest":        {&repb.ExecuteRequest{}, "action_digest"},
			"bad digest":       {&repb.ExecuteRequest{ActionDigest: &repb.Digest{Hash: "../x"}}, "action_digest"},
			"unknown function": {&repb.ExecuteRequest{ActionDigest: ok, DigestFunction: repb.DigestFunction_MD5}, "not supported"},
			"instance":         {&repb.ExecuteRequest{ActionDigest: ok, InstanceName: "a//b"}, "empty segment"},
			"long instance":    {&repb.ExecuteRequest{ActionDigest: ok, InstanceName: strings.Repeat("a/", 1000) + "a"}, "at most 1024 are taken"},
			"large action":     {&repb.ExecuteRequest{ActionDigest: &repb.Digest{Hash: ok.GetHash(), SizeBytes: 1<<20 + 1}}, "is larger than"},
			"large command": {&repb.ExecuteRequest{ActionDigest: f.storage.put(&repb.Action{
				CommandDigest: &repb.Digest{Hash: ok.GetHash(), SizeBytes: 16<<20 + 1}, InputRootDigest: empty,
			})}, "is larger than"},
			"many properties": {&repb.ExecuteRequest{ActionDigest: f.storage.action("x",
				func(a *repb.Action, _ *repb.Command) {
					a.Platform = &repb.Platform{Properties: make([]*repb.Platform_Property, 129)}
					for i := range a.Platform.Properties {
						a.Platform.Properties[i] = &repb.Platform_Property{Name: fmt.Sprint(i)}
					}
				})}, "the maximum is 128"},
			"dots":         {&repb.ExecuteRequest{ActionDigest: ok, InstanceName: "a/../b"}, "some would resolve"},
			"reserved":     {&repb.ExecuteRequest{ActionDigest: ok, InstanceName: "a/blobs"}, "reserved segment"},
			"garbage":      {&repb.ExecuteRequest{ActionDigest: f.storage.putBytes(digest.SHA256, []byte("\xff"))}, "cannot be decoded"},
			"empty action": {&repb.ExecuteRequest{ActionDigest: empty}, "command_digest"},
			"no input root": {&repb.ExecuteRequest{ActionDigest: f.storage.action("x",
				func(a *repb.Action, _ *repb.Command) { a.InputRootDigest = nil })}, "input_root_digest"},
			"no arguments": {&repb.ExecuteRequest{ActionDigest: f.storage.action("x",
				func(_ *repb.Action, c *repb.Command) { c.Arguments = nil })}, "no arguments"},
			"negative timeout": {&repb.ExecuteRequest{ActionDigest: f.storage.action("x",
				func(a *repb.Action, _ *repb.Command) { a.Timeout = durationpb.New(-1) })}, "negative"},
			"broken timeout": {&repb.ExecuteRequest{ActionDigest: f.storage.action("x",
				func(a *repb.Action, _ *repb.Command) { a.Timeout = &durationpb.Duration{Nanos: 2e9} })}, "timeout"},
		} {
			f.storage.blobs[digest.SHA256.Empty()] = nil
			t.Log(name)
			f.execute(t.Context(), c.req).fails(codes.InvalidArgument, c.text)
		}
		bad := metadata.AppendToOutgoingContext(t.Context(), names.RequestMetadataHeader, "\xff")
		f.execute(bad, &repb.ExecuteRequest{ActionDigest: ok}).fails(codes.InvalidArgument, "requestmetadata")
		f.storage.broken = errors.New("disk on fire")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: ok}).fails(codes.Unavailable, "disk on fire")
		f.storage.broken = status.Error(codes.PermissionDenied, "go away")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: ok}).fails(codes.PermissionDenied, "go away")
		f.wait(t.Context(), "operations/none").fails(codes.NotFound, "operations/none")
	})
}

// TestPriority sees that what a client says of priority and invocation arrives.
func TestPriority(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		var want []string
		for i, invocation := range []string{"a", "a", "b"} {
			d := f.storage.action(fmt.Sprint(i))
			header := must(proto.Marshal(&repb.RequestMetadata{ToolInvocationId: invocation}))
			ctx := metadata.AppendToOutgoingContext(t.Context(), names.RequestMetadataHeader, string(header))
			f.execute(ctx, &repb.ExecuteRequest{
				ActionDigest: d, ExecutionPolicy: &repb.ExecutionPolicy{Priority: int32(-i % 2)},
			}).at(repb.ExecutionStage_QUEUED)
			want = append(want, d.GetHash())
		}
		// First a's operation with the better priority; then it is b's turn.
		want[0], want[1], want[2] = want[1], want[2], want[0]
		for i, hash := range want {
			if got := f.worker(fmt.Sprint(i)).idle().GetActionDigest().GetHash(); got != hash {
				t.Errorf("worker %d gets %s, want %s", i, got, hash)
			}
		}
	})
}

func TestQueueBound(t *testing.T) {
	inFarm(t, ServerOptions{Config: tuning.Config{MaxQueued: 1}}, func(t *testing.T, f *farm) {
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}).at(repb.ExecutionStage_QUEUED)
		err := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("b")}).
			fails(codes.ResourceExhausted, "queue is full")
		wantRetry(t, err)
	})
}

// wantRetry checks that an error says when to try again.
func wantRetry(t *testing.T, err error) {
	t.Helper()
	details := status.Convert(err).Details()
	if len(details) != 1 {
		t.Fatalf("details of %v: %v", err, details)
	}
	if d, ok := details[0].(*errdetails.RetryInfo); !ok || d.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("no delay to retry after: %v", err)
	}
}

// TestCallOfEndedConnection has a call be handled after its connection has ended, and after its
// worker has called over another connection. It must change nothing.
func TestCallOfEndedConnection(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		l := bufconn.Listen(1)
		go func() {
			if c, err := l.Dial(); err == nil {
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			}
		}()
		conn := must(f.server.connections.Watch(l).Accept())
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		w := f.worker("w")
		d := f.storage.action("long")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED)
		w.idle()
		late := proto.CloneOf(w.req)
		w.running(d)
		over := peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()})
		_, err := f.server.queue.Synchronize(over, late)
		wantStatus(t, err, codes.Canceled, "canceled")
		if n := f.server.Counts(); n.Executing != 1 || n.Busy != 1 {
			t.Errorf("counts %+v", n)
		}
	})
}
