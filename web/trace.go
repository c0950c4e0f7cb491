package web

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// traceSuffix is that of a build's path where its trace is.
const traceSuffix = ".trace.json"

// tracePath is where the trace of an invocation is.
func tracePath(invocation string) string { return "/builds/" + url.PathEscape(invocation+traceSuffix) }

// A traceEvent is one of Chrome's trace event format, which Perfetto and chrome://tracing show. Times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    int64          `json:"ts"`
	Took  int64          `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// trace answers with what of an invocation has ended as a Chrome trace: a process for each machine, a thread for each position.
func (b *builder) trace(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	err := b.read(ctx, b.pattern())
	if err == nil && b.view.Total == 0 {
		err = status.Errorf(codes.NotFound, "nothing of invocation %q has ended, or it ended too long ago", b.view.Invocation)
	}
	if err != nil {
		b.site.fail(w, "build", err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	asFile(w, b.view.Invocation+traceSuffix, "application/json")
	out := bufio.NewWriterSize(w, 64<<10)
	before := `{"displayTimeUnit":"ms","traceEvents":[` + "\n"
	for e := range b.line.events {
		line, err := json.Marshal(e)
		if err != nil {
			continue // it has nothing that cannot be written
		}
		_, _ = out.WriteString(before)
		if _, err := out.Write(line); err != nil {
			return // who has left does not read it
		}
		before = ",\n"
	}
	if before != ",\n" { // nothing ran
		_, _ = out.WriteString(before)
	}
	_, _ = out.WriteString("\n]}\n")
	_ = out.Flush()
}

// events yields the trace events of what ran.
func (l *timeLine) events(yield func(traceEvent) bool) {
	type place struct{ pid, tid int }
	machines, positions := map[string]int{}, map[string]place{}
	for _, b := range l.ran {
		p, known := positions[b.worker]
		if !known {
			machine := hostOf(b.worker)
			if machine == "" {
				machine = workerText(b.worker)
			}
			if _, known := machines[machine]; !known {
				machines[machine] = len(machines) + 1
				if !yield(traceEvent{Name: "process_name", Phase: "M", PID: machines[machine], Args: map[string]any{"name": machine}}) {
					return
				}
			}
			p = place{machines[machine], len(positions) + 1}
			positions[b.worker] = p
			if !yield(traceEvent{Name: "thread_name", Phase: "M", PID: p.pid, TID: p.tid, Args: map[string]any{"name": workerText(b.worker)}}) {
				return
			}
		}
		span := func(name, category string, from, until time.Time) traceEvent {
			return traceEvent{
				Name: name, Cat: category, Phase: "X", At: from.UnixMicro(), Took: until.Sub(from).Microseconds(), PID: p.pid, TID: p.tid,
			}
		}
		whole := span(b.name, "action", b.parts[0], b.parts[3])
		whole.Args = map[string]any{"operation": b.operation, "failed": b.failed, "waited_ms": b.waited.Milliseconds()}
		if !yield(whole) {
			return
		}
		for i, stage := range []string{"inputs and waiting", "execution", "outputs and report"} {
			if b.parts[i+1].After(b.parts[i]) && !yield(span(stage, "stage", b.parts[i], b.parts[i+1])) {
				return
			}
		}
	}
}
