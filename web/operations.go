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
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/printed"
)

func operationName(r *http.Request) string { return names.OperationPrefix + r.PathValue("id") }

// An operationPages serves the pages of operations, and cancels operations.
type operationPages struct {
	*renderer
	*answers.Source
	operations longrunningpb.OperationsServer
	records    *recordPages // shows completed operations
	prints     *printed.Reader
	output     bool // whether the output of running commands is available
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

// An operationView is an operation with its progress.
type operationView struct {
	*admin.Operation
	Stage   string
	Message string // for the client
	Error   string // the status of the response, unless it is OK
	Exit    *int32 // exit code of the command; nil until it is known
	Reused  bool   // the result is from the action cache
	Worker  string
	Spans   []facts.Span
	Facts   []facts.Table
	Output  bool // whether the page shows output while the command runs
	Printed []printed.Text
}

// Failed reports whether the operation ended without success.
func (o operationView) Failed() bool { return o.Error != "" || o.Exit != nil && *o.Exit != 0 }

// form changes when viewers must reload the page to see all of it.
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
			err = recordErr // this error says how long records are kept
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

// respond copies the fields of the response.
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

// cancel ends an operation with a status after which clients do not execute it again; Bazel does so
// after CANCELLED. It does not change an operation that has already ended.
func (p *operationPages) cancel(w http.ResponseWriter, r *http.Request) {
	name := operationName(r)
	// The operation must exist before its name becomes a pattern below.
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
