package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/printed"
	"github.com/forerunner-build/forerunner/web/text"
)

func operationName(r *http.Request) string { return text.OperationPrefix + r.PathValue("id") }

// An operationPages shows operations, and cancels them.
type operationPages struct {
	*renderer
	*answers.Source
	operations longrunningpb.OperationsServer
	records    *recordPages // shows completed ones
	prints     *printed.Reader
	output     bool // output of running commands can be watched
}

func (p *operationPages) list(ctx context.Context, r *http.Request) (any, error) {
	asked, which, err := askedFor(r)
	if err != nil {
		return nil, err
	}
	token := r.FormValue("page")
	key := answers.KeyFor(ctx, "operations "+asked+" "+token)
	list, err := answers.Get(ctx, p.Source, key, func(ctx context.Context) (*admin.ListOperationsResponse, error) {
		return p.Scheduler.ListOperations(ctx, &admin.ListOperationsRequest{Pattern: which, PageSize: pageRows, PageToken: token})
	})
	if err != nil {
		return nil, err
	}
	return rows[*admin.Operation]{list.GetOperations(), asked, list.GetNextPageToken()}, nil
}

// An operationView is one operation and its progress.
type operationView struct {
	*admin.Operation
	Stage   string
	Message string // for the client
	Error   string // the status of the response, if it is none of success
	Exit    *int32 // of the command, once it is known
	Reused  bool   // the result was in the cache
	Worker  string
	Spans   []facts.Span
	Facts   []facts.Table
	Output  bool // can be watched
	Printed []printed.Text
}

// Failed reports whether it ended, and not with success.
func (o operationView) Failed() bool { return o.Error != "" || o.Exit != nil && *o.Exit != 0 }

// form changes when viewers must load the page again to see all of it.
func (o operationView) form() string { return o.Stage }

// ActionPath returns the page of the action.
func (o operationView) ActionPath() string {
	return fmt.Sprintf("/actions/%s/%s?%s", o.GetDigestFunction(), o.GetAction(),
		url.Values{"instance": {o.GetInstanceName()}, "mnemonic": {o.GetMnemonic()}}.Encode())
}

func (p *operationPages) one(ctx context.Context, r *http.Request) (any, error) {
	name := operationName(r)
	op, err := p.Scheduler.GetOperation(ctx, &admin.GetOperationRequest{Name: name})
	if op.GetDone() || status.Code(err) == codes.NotFound {
		record, recordErr := p.Scheduler.GetRecord(ctx, &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: name}})
		if recordErr == nil {
			return p.records.one(ctx, record, r), nil
		}
		if err != nil && status.Code(recordErr) == codes.NotFound {
			err = recordErr // which says how long records are kept
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := p.operations.GetOperation(ctx, &longrunningpb.GetOperationRequest{Name: name})
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
		v.Spans = facts.SpansSoFar(op, time.Now())
		v.Output = meta.GetStage() == repb.ExecutionStage_EXECUTING && p.output
		return v, nil
	}
	var resp repb.ExecuteResponse
	if err := m.GetResponse().UnmarshalTo(&resp); err != nil {
		return nil, status.Errorf(codes.Internal, "response of %s: %v", name, err)
	}
	v.respond(&resp)
	v.Printed = p.prints.Of(ctx, op, resp.GetResult())
	return v, nil
}

// respond copies the response.
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
	o.Spans, o.Facts = facts.Spans(meta), facts.Packed(meta.GetAuxiliaryMetadata())
}

// cancel ends an operation in such a way that clients do not execute it again, as Bazel does after
// CANCELLED. One that has ended meanwhile is unchanged.
func (p *operationPages) cancel(w http.ResponseWriter, r *http.Request) {
	name := operationName(r)
	// Only a known name: it becomes a pattern below.
	_, err := p.Scheduler.GetOperation(r.Context(), &admin.GetOperationRequest{Name: name})
	if err == nil {
		_, err = p.Scheduler.KillOperations(r.Context(), &admin.KillOperationsRequest{
			Pattern: &admin.Pattern{Attributes: map[string]string{"operation": name}}, Reason: "cancelled by an operator",
		})
	}
	if err != nil {
		p.fail(w, r, "operation", err)
		return
	}
	p.Forget()
	http.Redirect(w, r, "/"+name, http.StatusSeeOther)
}
