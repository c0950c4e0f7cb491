package core

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// Replayed is what came of a recording.
type Replayed struct {
	// State is as after the last event.
	State  *State
	Events int
	// Recorded is State.Dump of the State that was recorded, at the same point; empty
	// if the recording broke off, as when its program was killed.
	Recorded string
}

// Replay makes a State of what a Journal has written. A recording that breaks off
// is taken as far as it goes.
func Replay(r io.Reader) (*Replayed, error) {
	in := &events{Reader: bufio.NewReader(r)}
	e, err := in.next()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	start := e.GetStart()
	if start == nil {
		return nil, errors.New("replay: this is no recording")
	}
	var config Config
	if err := json.Unmarshal(start.GetConfig(), &config); err != nil {
		return nil, fmt.Errorf("replay: configuration: %w", err)
	}
	state, err := NewState(config)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	now := start.GetAt().AsTime()
	if err := state.Record(now, NewJournal(io.Discard, math.MaxInt64)); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	p := &Replayed{State: state}
	for {
		e, err := in.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return p, nil
		} else if err != nil {
			return nil, fmt.Errorf("replay: event %d: %w", p.Events, err)
		}
		now = now.Add(time.Duration(e.GetDeltaNs()))
		if end := e.GetEnd(); end != nil {
			p.Recorded = end.GetState()
			return p, nil
		}
		if err := p.feed(now, e); err != nil {
			return nil, fmt.Errorf("replay: event %d: %w", p.Events, err)
		}
		p.Events++
	}
}

// events are those of a recording.
type events struct {
	*bufio.Reader
	message bytes.Buffer // that was read last
}

// next returns the next one, io.EOF after the last. However long a message says it is, no more
// memory is taken than there are bytes.
func (in *events) next() (*record.Event, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	in.message.Reset()
	if _, err := io.CopyN(&in.message, in, int64(min(n, math.MaxInt64))); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	e := &record.Event{}
	return e, proto.Unmarshal(in.message.Bytes(), e)
}

// feed gives one event to the State; what it answers was answered long ago.
func (p *Replayed) feed(now time.Time, e *record.Event) error {
	s := p.State
	switch kind := e.GetKind().(type) {
	case *record.Event_Submit:
		op, err := submitted(kind.Submit)
		if err != nil {
			return err
		}
		_, _ = s.Submit(now, op)
	case *record.Event_Held:
		h, err := HeldOf(kind.Held)
		if err != nil {
			return err
		}
		s.Restore(now, h)
	case *record.Event_Sync:
		r, err := reported(kind.Sync)
		if err != nil {
			return err
		}
		s.Sync(now, r)
	case *record.Event_Attach:
		s.Attach(now, kind.Attach)
	case *record.Event_Detach:
		s.Detach(now, kind.Detach)
	case *record.Event_Cancel:
		s.Cancel(now, kind.Cancel)
	case *record.Event_Hangup:
		s.Hangup(now, kind.Hangup.GetWorker(), kind.Hangup.GetCall())
	case *record.Event_Tick:
		s.Tick(now)
	case *record.Event_Disconnect:
		s.Disconnect(now, kind.Disconnect)
	case *record.Event_Kill:
		s.Kill(now, kind.Kill.GetNames(), kind.Kill.GetReason())
	case *record.Event_Drain:
		p, err := pattern.New(kind.Drain.GetAttributes())
		if err != nil {
			return err
		}
		_, _ = s.Drain(now, p)
	case *record.Event_Undrain:
		p, err := pattern.New(kind.Undrain.GetAttributes())
		if err != nil {
			return err
		}
		s.Undrain(now, p)
	case *record.Event_PutQuota:
		m := kind.PutQuota
		_, _ = s.PutQuota(now, QuotaKey{m.GetCohort(), m.GetInstance()}, quota.Quota{Min: m.GetMin(), Max: m.GetMax()}, m.GetPreempt())
	case *record.Event_DeleteQuota:
		s.DeleteQuota(now, QuotaKey{kind.DeleteQuota.GetCohort(), kind.DeleteQuota.GetInstance()})
	default:
		return fmt.Errorf("%v is not known", e)
	}
	return nil
}

func submitted(m *record.Submit) (*Operation, error) {
	fn, err := digest.FunctionFromProto(m.GetFunction())
	if err != nil {
		return nil, err
	}
	d, err := digest.FromProto(fn, m.GetDigest())
	if err != nil {
		return nil, err
	}
	return &Operation{
		Name: m.GetName(), Instance: m.GetInstance(), Digest: d, Action: &repb.Action{},
		Platform: NewPlatform(m.GetPlatform()), Private: m.GetPrivate(), Client: m.GetClient(), Request: metadataOf(m.GetRequest()),
		Priority: m.GetPriority(), Expected: time.Duration(m.GetExpectedNs()), User: m.GetUser(), Claims: m.GetClaims(),
		Size: Size{
			Class: m.GetSizeClass(), Timeout: time.Duration(m.GetSizeTimeoutNs()), Expected: time.Duration(m.GetSizeExpectedNs()), Hedge: m.GetSizeHedge(),
		},
	}, nil
}

// HeldOf undoes Held.Record.
func HeldOf(m *record.Held) (Held, error) {
	op, err := submitted(m.GetOperation())
	if err != nil {
		return Held{}, err
	}
	if m.GetAction() != nil {
		op.Action = m.GetAction()
	}
	op.Auxiliary = m.GetAuxiliary()
	return Held{
		Operation: op, Queued: m.GetQueued().AsTime(), Started: m.GetStarted().AsTime(), Attempts: int(m.GetAttempts()),
		Worker: m.GetWorker(), ID: m.GetId(), Prefix: m.GetPrefix(), WorkerPlatform: NewPlatform(m.GetPlatform()), SizeClass: m.GetSizeClass(),
	}, nil
}

func reported(m *record.Sync) (Report, error) {
	r := Report{
		Call: m.GetCall(), Worker: m.GetWorker(), ID: m.GetId(), Connection: m.GetConnection(), Prefix: m.GetPrefix(),
		Platform: NewPlatform(m.GetPlatform()), SizeClass: m.GetSizeClass(), Doing: Doing(m.GetDoing()),
		PreferIdle: m.GetPreferIdle(), Uploading: m.GetUploading(), Running: m.GetRunning(),
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
		}
		if x.GetCode() != 0 {
			r.Response.Status = &spb.Status{Code: x.GetCode(), Message: x.GetMessage()}
		}
	}
	return r, nil
}
