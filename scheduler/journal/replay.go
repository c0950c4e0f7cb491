package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// Replayed is the result of a replay.
type Replayed struct {
	// State is the State after the last event.
	State  *core.State
	Events int
	// Dump describes State and its answers as text. Recorded describes the recorded State at the
	// same point; it is empty if the recording broke off, for example because its program was
	// killed.
	Dump, Recorded string
}

// Replay rebuilds a State from a recording. If the recording breaks off, Replay uses all complete
// events. see is called after each event, unless it is nil.
func Replay(r io.Reader, see func(number int, s *core.State) error) (*Replayed, error) {
	in := &events{Reader: bufio.NewReader(r)}
	e, err := in.next()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	start := e.GetStart()
	if start == nil {
		return nil, errors.New("replay: this is not a recording")
	}
	var config tuning.Config
	if err := json.Unmarshal(start.GetConfig(), &config); err != nil {
		return nil, fmt.Errorf("replay: configuration: %w", err)
	}
	state, err := core.NewState(config)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	p, now := &Replayed{State: state}, start.GetAt().AsTime()
	sum := newAnswers(now)
	for {
		m, err := in.next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("replay: event %d: %w", p.Events, err)
		}
		now = now.Add(time.Duration(m.GetDeltaNs()))
		if end := m.GetEnd(); end != nil {
			p.Recorded = end.GetState()
			break
		}
		e, err := decode(m)
		if err != nil {
			return nil, fmt.Errorf("replay: event %d: %w", p.Events, err)
		}
		sum.add(state.Step(now, e))
		p.Events++
		if see != nil {
			if err := see(p.Events, state); err != nil {
				return nil, fmt.Errorf("replay: after event %d: %w", p.Events, err)
			}
		}
	}
	p.Dump = sum.describe(state)
	return p, nil
}

// events reads the events of a recording.
type events struct {
	*bufio.Reader
	message bytes.Buffer // that was read last
}

// next returns the next one, io.EOF after the last. Even if a message claims a larger length, it
// takes no more memory than there are bytes.
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
