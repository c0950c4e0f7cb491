package timeline

import (
	"time"

	"github.com/forerunner-build/forerunner/web/text"
)

// An Event is an event of Chrome's trace event format, which Perfetto and chrome://tracing show.
// Times are in microseconds.
type Event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    int64          `json:"ts"`
	Took  int64          `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    int            `json:"id,omitempty"` // identifies an event that overlaps others of its thread
	Args  map[string]any `json:"args,omitempty"`
}

// Events yields the trace events of completed actions.
func (l *Line) Events(yield func(Event) bool) {
	type thread struct{ pid, tid int }
	machines, positions := map[string]int{}, map[string]thread{}
	for i, b := range l.ran {
		p, known := positions[b.worker]
		if !known {
			machine := text.Host(b.worker)
			if machine == "" {
				machine = text.Machine(b.worker)
			}
			if _, known := machines[machine]; !known {
				machines[machine] = len(machines) + 1
				if !yield(Event{Name: "process_name", Phase: "M", PID: machines[machine], Args: map[string]any{"name": machine}}) {
					return
				}
			}
			p = thread{machines[machine], len(positions) + 1}
			positions[b.worker] = p
			if !yield(Event{Name: "thread_name", Phase: "M", PID: p.pid, TID: p.tid, Args: map[string]any{"name": text.Worker(b.worker)}}) {
				return
			}
		}
		span := func(name, category string, from, until time.Time) Event {
			return Event{
				Name: name, Cat: category, Phase: "X", At: from.UnixMicro(), Took: until.Sub(from).Microseconds(), PID: p.pid, TID: p.tid,
			}
		}
		if b.waited > 0 {
			queue := Event{Name: "queue " + b.name, Cat: "queue", Phase: "b", At: b.parts[0].Add(-b.waited).UnixMicro(), PID: p.pid, TID: p.tid, ID: i + 1}
			started := queue
			if started.Phase, started.At = "e", b.parts[0].UnixMicro(); !yield(queue) || !yield(started) {
				return
			}
		}
		whole := span(b.name, "action", b.parts[0], b.parts[3])
		whole.Args = map[string]any{"operation": b.operation, "failed": b.failed, "waited_ms": b.waited.Milliseconds()}
		if !yield(whole) {
			return
		}
		for part, stage := range []string{"inputs and waiting", "execution", "outputs and report"} {
			if b.parts[part+1].After(b.parts[part]) && !yield(span(stage, "stage", b.parts[part], b.parts[part+1])) {
				return
			}
		}
	}
}
