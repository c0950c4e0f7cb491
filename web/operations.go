package web

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/web/text"
	"github.com/forerunner-build/forerunner/web/timeline"
)

func operationName(r *http.Request) string { return text.OperationPrefix + r.PathValue("id") }

// A rows is one page of a long list.
type rows[T any] struct {
	List []T
	// Pattern is what was asked for, Next the token of the next page; both may be empty.
	Pattern, Next string
}

// NextQuery is the query of the next page.
func (r rows[T]) NextQuery() template.URL {
	return template.URL(url.Values{"pattern": {r.Pattern}, "page": {r.Next}}.Encode())
}

// askedFor returns what the viewer looks for, nil for everything: a text, or names with values.
func askedFor(r *http.Request) (asked string, p *admin.Pattern, err error) {
	asked = strings.TrimSpace(r.FormValue("pattern"))
	if names, values := r.Form["name"], r.Form["value"]; len(names) > 0 && len(names) == len(values) {
		m := map[string]string{}
		for i, name := range names {
			m[name] = values[i]
		}
		return text.Pairs(m), &admin.Pattern{Attributes: m}, nil
	}
	if asked == "" {
		return "", nil, nil
	}
	parsed, err := pattern.Parse(asked)
	if err != nil {
		return asked, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return asked, &admin.Pattern{Attributes: parsed.Map()}, nil
}

func (s *Site) operations(ctx context.Context, r *http.Request) (any, error) {
	text, p, err := askedFor(r)
	if err != nil {
		return nil, err
	}
	token := r.FormValue("page")
	key := keyFor(ctx, "operations "+text+" "+token)
	list, err := ask(ctx, s.source, key, func(ctx context.Context) (*admin.ListOperationsResponse, error) {
		return s.options.Scheduler.ListOperations(ctx, &admin.ListOperationsRequest{Pattern: p, PageSize: pageRows, PageToken: token})
	})
	if err != nil {
		return nil, err
	}
	return rows[*admin.Operation]{list.GetOperations(), text, list.GetNextPageToken()}, nil
}

// An operationView is one operation and what came of it so far.
type operationView struct {
	*admin.Operation
	Stage   string
	Message string // for the client
	Error   string // the status of the response, if it is none of success
	Exit    *int32 // of the command, once it is known
	Reused  bool   // the result was in the cache
	Worker  string
	Spans   []span
	Facts   []Facts
	Output  bool // can be watched
	Printed []printed
}

// Failed reports whether it ended, and not with success.
func (o operationView) Failed() bool { return o.Error != "" || o.Exit != nil && *o.Exit != 0 }

// form is what viewers have to load anew to see all of the page.
func (o operationView) form() string { return o.Stage }

// ActionPath is where the page of the action is.
func (o operationView) ActionPath() string {
	return fmt.Sprintf("/actions/%s/%s?%s", o.GetDigestFunction(), o.GetAction(),
		url.Values{"instance": {o.GetInstanceName()}, "mnemonic": {o.GetMnemonic()}}.Encode())
}

func (s *Site) operation(ctx context.Context, r *http.Request) (any, error) {
	name := operationName(r)
	op, err := s.options.Scheduler.GetOperation(ctx, &admin.GetOperationRequest{Name: name})
	if op.GetDone() || status.Code(err) == codes.NotFound {
		v, recordErr := s.record(ctx, &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: name}})
		if recordErr == nil {
			if r.FormValue("compare") != "" {
				v.Compared = s.compare(ctx, v.Record)
			}
			return v, nil
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := s.options.Operations.GetOperation(ctx, &longrunningpb.GetOperationRequest{Name: name})
	if err != nil {
		return nil, err
	}
	v := operationView{Operation: op, Worker: op.GetWorker()}
	var meta repb.ExecuteOperationMetadata
	if err := m.GetMetadata().UnmarshalTo(&meta); err != nil {
		return nil, status.Errorf(codes.Internal, "metadata of %s: %v", name, err)
	}
	v.Stage = strings.ToLower(meta.GetStage().String())
	if m.GetResponse() == nil {
		v.Spans = spansSoFar(op, time.Now())
		v.Output = meta.GetStage() == repb.ExecutionStage_EXECUTING && s.options.Output != nil
		return v, nil
	}
	var resp repb.ExecuteResponse
	if err := m.GetResponse().UnmarshalTo(&resp); err != nil {
		return nil, status.Errorf(codes.Internal, "response of %s: %v", name, err)
	}
	v.respond(&resp)
	v.Printed = s.printed(ctx, op, resp.GetResult())
	return v, nil
}

// respond takes over what the response says.
func (o *operationView) respond(resp *repb.ExecuteResponse) {
	o.Message, o.Reused = resp.GetMessage(), resp.GetCachedResult()
	if st := resp.GetStatus(); st.GetCode() != 0 {
		o.Error = fmt.Sprintf("%s: %s", codes.Code(st.GetCode()), st.GetMessage())
	}
	if resp.GetResult() != nil {
		exit := resp.GetResult().GetExitCode()
		o.Exit = &exit
	}
	meta := resp.GetResult().GetExecutionMetadata()
	if meta.GetWorker() != "" {
		o.Worker = meta.GetWorker()
	}
	o.Spans, o.Facts = spans(meta), factsOf(meta.GetAuxiliaryMetadata())
}

// spansSoFar is the time line of an operation that is not done.
func spansSoFar(op *admin.Operation, now time.Time) []span {
	m := &repb.ExecutedActionMetadata{QueuedTimestamp: op.GetQueued(), WorkerStartTimestamp: timestamppb.New(now)}
	if op.GetStarted() != nil {
		m.WorkerStartTimestamp, m.WorkerCompletedTimestamp = op.GetStarted(), timestamppb.New(now)
	}
	list := spans(m)
	if op.GetStarted() != nil {
		list[len(list)-1].Name = "on the worker"
	}
	return list
}

// A span is a stage on the time line of an action, in thousandths of it all.
type span struct {
	Name     string
	From, To int64
	Took     time.Duration
}

func (s span) Width() int64 { return max(s.To-s.From, 2) }

// spans returns the stages that an action went through, in their order.
func spans(m *repb.ExecutedActionMetadata) []span {
	marks := []struct {
		name  string
		until *timestamppb.Timestamp
	}{
		{"", m.GetQueuedTimestamp()},
		{"queued", m.GetWorkerStartTimestamp()},
		{"accepted", m.GetInputFetchStartTimestamp()},
		{"input fetch", m.GetInputFetchCompletedTimestamp()},
		{"wait for a slot", m.GetExecutionStartTimestamp()},
		{"execution", m.GetExecutionCompletedTimestamp()},
		{"wait for upload", m.GetOutputUploadStartTimestamp()},
		{"output upload", m.GetOutputUploadCompletedTimestamp()},
		{"report", m.GetWorkerCompletedTimestamp()},
	}
	var list []span
	var first, last time.Time
	for _, mark := range marks {
		if mark.until == nil {
			continue
		}
		at := mark.until.AsTime()
		if first.IsZero() {
			first, last = at, at
			continue
		}
		at = timeline.Later(at, last) // clocks of two machines
		list = append(list, span{mark.name, int64(last.Sub(first)), int64(at.Sub(first)), at.Sub(last)})
		last = at
	}
	if all := int64(last.Sub(first)); all > 0 {
		for i := range list {
			list[i].From, list[i].To = share(list[i].From, all), share(list[i].To, all)
		}
	}
	return list
}

func share(part, all int64) int64 { return int64(1000 * (float64(part) / float64(all))) }

// cancel ends an operation in such a way that clients do not execute it again, as Bazel does after
// CANCELLED. One that has ended meanwhile is not touched.
func (s *Site) cancel(w http.ResponseWriter, r *http.Request) {
	name := operationName(r)
	// Only what is known under this name: it is a pattern below.
	_, err := s.options.Scheduler.GetOperation(r.Context(), &admin.GetOperationRequest{Name: name})
	if err == nil {
		_, err = s.options.Scheduler.KillOperations(r.Context(), &admin.KillOperationsRequest{
			Pattern: &admin.Pattern{Attributes: map[string]string{"operation": name}}, Reason: "cancelled by an operator",
		})
	}
	if err != nil {
		s.fail(w, r, "operation", err)
		return
	}
	s.source.forget()
	http.Redirect(w, r, "/"+name, http.StatusSeeOther)
}
