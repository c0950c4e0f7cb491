package journal

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// encode returns the part of an event that determines the reaction of State.
func encode(e event.Event) noted {
	m := &record.Event{}
	switch e := e.(type) {
	case event.Submit:
		m.Kind = &record.Event_Submit{Submit: encodeOperation(e.Operation)}
	case event.Attach:
		m.Kind = &record.Event_Attach{Attach: e.Name}
	case event.Detach:
		m.Kind = &record.Event_Detach{Detach: e.Name}
		if e.Now {
			m.Kind = &record.Event_Leave{Leave: e.Name}
		}
	case event.Cancel:
		m.Kind = &record.Event_Cancel{Cancel: e.Name}
	case *event.Report:
		m.Kind = &record.Event_Sync{Sync: encodeReport(e)}
		return noted{event: m, response: e.Response}
	case event.Hangup:
		m.Kind = &record.Event_Hangup{Hangup: &record.Hangup{Worker: e.Worker, Call: e.Call}}
	case event.Disconnect:
		m.Kind = &record.Event_Disconnect{Disconnect: e.Connection}
	case event.Restore:
		m.Kind = &record.Event_Held{Held: EncodeHeld(e.Held)}
	case event.Tick:
		m.Kind = &record.Event_Tick{Tick: &record.Tick{}}
	default:
		m.Kind = &record.Event_Order{Order: encodeOrder(e)}
	}
	return noted{event: m}
}

// decode undoes encode.
func decode(m *record.Event) (event.Event, error) {
	switch kind := m.GetKind().(type) {
	case *record.Event_Submit:
		op, err := decodeOperation(kind.Submit)
		return event.Submit{Operation: op}, err
	case *record.Event_Attach:
		return event.Attach{Name: kind.Attach}, nil
	case *record.Event_Detach:
		return event.Detach{Name: kind.Detach}, nil
	case *record.Event_Leave:
		return event.Detach{Name: kind.Leave, Now: true}, nil
	case *record.Event_Cancel:
		return event.Cancel{Name: kind.Cancel}, nil
	case *record.Event_Sync:
		return decodeReport(kind.Sync)
	case *record.Event_Hangup:
		return event.Hangup{Worker: kind.Hangup.GetWorker(), Call: kind.Hangup.GetCall()}, nil
	case *record.Event_Disconnect:
		return event.Disconnect{Connection: kind.Disconnect}, nil
	case *record.Event_Order:
		return decodeOrder(kind.Order)
	case *record.Event_Held:
		h, err := DecodeHeld(kind.Held)
		return event.Restore{Held: h}, err
	case *record.Event_Tick:
		return event.Tick{}, nil
	}
	return nil, fmt.Errorf("%v is not known", m)
}

// orders are the types of core.Orders, by name.
var orders = func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, e := range core.Orders() {
		t := reflect.TypeOf(e)
		types[t.Name()] = t
	}
	return types
}()

func encodeOrder(e event.Event) *record.Order {
	t := reflect.TypeOf(e)
	value, err := json.Marshal(e)
	if orders[t.Name()] != t || err != nil {
		panic(fmt.Sprintf("event %T cannot be recorded: it is not among core.Orders, or no JSON: %v", e, err))
	}
	return &record.Order{Name: t.Name(), Value: value}
}

func decodeOrder(m *record.Order) (event.Event, error) {
	t, ok := orders[m.GetName()]
	if !ok {
		return nil, fmt.Errorf("order %q is not known", m.GetName())
	}
	e := reflect.New(t)
	if err := json.Unmarshal(m.GetValue(), e.Interface()); err != nil {
		return nil, fmt.Errorf("order %s: %w", m.GetName(), err)
	}
	return e.Elem().Interface().(event.Event), nil
}

func encodeOperation(op *request.Operation) *record.Submit {
	return &record.Submit{
		Name: op.Name, Instance: op.Instance, Digest: op.Digest.Proto(), Function: op.Digest.Function().Proto(),
		Platform: op.Platform.Proto(), Private: op.Private, Client: op.Client, Request: encodeMetadata(op.Request),
		Priority: op.Priority, ExpectedNs: int64(op.Expected), User: op.User, Claims: op.Claims,
		SizeClass: op.Size.Class, SizeTimeoutNs: int64(op.Size.Timeout), SizeExpectedNs: int64(op.Size.Expected),
		SizeHedge: op.Size.Hedge,
	}
}

func decodeOperation(m *record.Submit) (*request.Operation, error) {
	fn, err := digest.FunctionFromProto(m.GetFunction())
	if err != nil {
		return nil, err
	}
	d, err := digest.FromProto(fn, m.GetDigest())
	if err != nil {
		return nil, err
	}
	return &request.Operation{
		Name: m.GetName(), Instance: m.GetInstance(), Digest: d, Action: &repb.Action{},
		Platform: request.NewPlatform(m.GetPlatform()), Private: m.GetPrivate(), Client: m.GetClient(), Request: decodeMetadata(m.GetRequest()),
		Priority: m.GetPriority(), Expected: time.Duration(m.GetExpectedNs()), User: m.GetUser(), Claims: m.GetClaims(),
		Size: request.Size{
			Class: m.GetSizeClass(), Timeout: time.Duration(m.GetSizeTimeoutNs()), Expected: time.Duration(m.GetSizeExpectedNs()), Hedge: m.GetSizeHedge(),
		},
	}, nil
}

func encodeMetadata(m request.Metadata) *repb.RequestMetadata {
	return &repb.RequestMetadata{
		ToolInvocationId: m.ToolInvocation, CorrelatedInvocationsId: m.Correlated,
		ActionMnemonic: m.Mnemonic, TargetId: m.Target, ConfigurationId: m.Configuration,
	}
}

func decodeMetadata(m *repb.RequestMetadata) request.Metadata {
	return request.Metadata{
		ToolInvocation: m.GetToolInvocationId(), Correlated: m.GetCorrelatedInvocationsId(),
		Mnemonic: m.GetActionMnemonic(), Target: m.GetTargetId(), Configuration: m.GetConfigurationId(),
	}
}

// EncodeHeld returns the part of h that determines the reaction of State.
func EncodeHeld(h event.Held) *record.Held {
	return &record.Held{
		Operation: encodeOperation(h.Operation), Queued: timestamppb.New(h.Queued), Started: timestamppb.New(h.Started),
		Attempts: int32(h.Attempts), Worker: h.Worker, Id: h.ID, Prefix: h.Prefix, Platform: h.WorkerPlatform.Proto(),
		Required: h.WorkerPlatform.Required(), Implied: h.WorkerPlatform.Implied(), SizeClass: h.SizeClass,
	}
}

// DecodeHeld reverses EncodeHeld. It also reads the data for a worker that comes with the
// operation, if there is any.
func DecodeHeld(m *record.Held) (event.Held, error) {
	op, err := decodeOperation(m.GetOperation())
	if err != nil {
		return event.Held{}, err
	}
	if m.GetAction() != nil {
		op.Action = m.GetAction()
	}
	op.Auxiliary = m.GetAuxiliary()
	return event.Held{
		Operation: op, Queued: m.GetQueued().AsTime(), Started: m.GetStarted().AsTime(), Attempts: int(m.GetAttempts()),
		Worker: m.GetWorker(), ID: m.GetId(), Prefix: m.GetPrefix(),
		WorkerPlatform: request.NewOffer(m.GetPlatform(), m.GetRequired(), m.GetImplied()), SizeClass: m.GetSizeClass(),
	}, nil
}

func encodeReport(r *event.Report) *record.Sync {
	m := &record.Sync{
		Call: r.Call, Worker: r.Worker, Id: r.ID, Connection: r.Connection, Prefix: r.Prefix,
		Platform: r.Platform.Proto(), SizeClass: r.SizeClass, Doing: uint32(r.Doing), Action: actionName(r.Action),
		PreferIdle: r.PreferIdle, Uploading: r.Stage == event.Uploading, Running: r.Stage == event.Running,
		Boot: r.Boot, Required: r.Platform.Required(), Implied: r.Platform.Implied(),
	}
	if r.Named {
		m.Instance = &r.Instance
	}
	return m
}

// actionName returns "<hash>/<size>", without the function, which workers do not send; empty for
// none.
func actionName(d digest.Digest) string {
	if d.IsZero() {
		return ""
	}
	var buffer [digest.HashSize]byte
	return hex.EncodeToString(d.AppendHash(buffer[:0])) + "/" + strconv.FormatInt(d.SizeBytes(), 10)
}

func decodeReport(m *record.Sync) (*event.Report, error) {
	r := &event.Report{
		Call: m.GetCall(), Worker: m.GetWorker(), ID: m.GetId(), Connection: m.GetConnection(), Prefix: m.GetPrefix(),
		Platform:  request.NewOffer(m.GetPlatform(), m.GetRequired(), m.GetImplied()),
		SizeClass: m.GetSizeClass(), Doing: event.Doing(m.GetDoing()),
		PreferIdle: m.GetPreferIdle(), Boot: m.GetBoot(), Instance: m.GetInstance(), Named: m.Instance != nil,
	}
	if r.Call == 0 {
		return r, errors.New("a report is of call 0")
	}
	switch {
	case m.GetUploading():
		r.Stage = event.Uploading
	case m.GetRunning():
		r.Stage = event.Running
	}
	if name := m.GetAction(); name != "" {
		hash, size, _ := strings.Cut(name, "/")
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return r, fmt.Errorf("size of action %s: %w", name, err)
		}
		if r.Action, err = digest.Parse(digest.SHA256, hash, n); err != nil {
			return r, err
		}
	}
	if x := m.GetResponse(); x != nil {
		r.Response = &repb.ExecuteResponse{Message: fmt.Sprintf("%016x", x.GetHash())}
		if x.GetHasResult() {
			r.Response.Result = &repb.ActionResult{ExitCode: x.GetExitCode()}
			if x.GetTimed() {
				r.Response.Result.ExecutionMetadata = &repb.ExecutedActionMetadata{WorkerCompletedTimestamp: &timestamppb.Timestamp{}}
			}
		}
		if x.GetCode() != 0 {
			r.Response.Status = &spb.Status{Code: x.GetCode(), Message: x.GetMessage()}
		}
	}
	return r, nil
}

// essence returns the part of a response that State reads.
func essence(r *repb.ExecuteResponse) *record.Response {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r) // it has come over the wire
	h := fnv.New64a()
	_, _ = h.Write(b)
	return &record.Response{
		HasResult: r.GetResult() != nil, ExitCode: r.GetResult().GetExitCode(),
		Code: r.GetStatus().GetCode(), Message: r.GetStatus().GetMessage(), Hash: h.Sum64(),
		Timed: r.GetResult().GetExecutionMetadata().GetWorkerCompletedTimestamp() != nil,
	}
}
