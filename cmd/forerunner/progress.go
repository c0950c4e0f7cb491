package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/comparison"
	"github.com/forerunner-build/forerunner/web/text"
)

// How often progress is shown at most: in a line that changes, and in lines that
// follow each other in a log.
const (
	terminalInterval = 100 * time.Millisecond
	logInterval      = time.Second
)

// A progress shows the progress: on a terminal in one changing line, otherwise in a line for each
// stage.
type progress struct {
	out      io.Writer
	terminal bool
	quiet    bool

	mu    sync.Mutex
	last  time.Time
	stage client.Stage
	open  bool // the current line has no end yet
}

func newProgress(f *os.File, quiet bool) *progress {
	return &progress{out: f, terminal: logline.IsTerminal(f), quiet: quiet, last: time.Now()}
}

// scanned gets the hashed part of the input root.
func (p *progress) scanned(files int, bytes int64) {
	p.show(false, "reading inputs: %s, %s", plural.Of(files, "file"), text.Bytes(bytes))
}

// inputs gets the size of the input root.
func (p *progress) inputs(in *client.Inputs) {
	p.show(true, "inputs: %s, %s", plural.Of(in.Files, "file"), text.Bytes(in.Bytes))
}

// event gets the progress of the execution.
func (p *progress) event(e client.Event) {
	if e.Stage == client.Done {
		return // see ended
	}
	p.mu.Lock()
	fresh := p.stage != e.Stage
	p.stage = e.Stage
	p.mu.Unlock()
	if e.Stage == client.Uploading {
		if e.TotalBytes == 0 {
			return // the search for missing blobs still runs
		}
		p.show(e.DoneBytes == e.TotalBytes, "uploading: %s of %s", text.Bytes(e.DoneBytes), text.Bytes(e.TotalBytes))
		return
	}
	if fresh {
		p.show(true, "%s", e.Stage)
	}
}

// ended prints where the command ran, and for how long, in a permanent line.
func (p *progress) ended(o *client.Outcome) {
	p.end()
	m := o.Result.GetExecutionMetadata()
	ran := m.GetExecutionCompletedTimestamp().AsTime().Sub(m.GetExecutionStartTimestamp().AsTime())
	switch {
	case p.quiet:
	case o.Cached && comparison.Spared(o.Message, m):
		fmt.Fprintln(p.out, "done: the run was skipped: this is the result of an earlier one")
	case o.Cached:
		fmt.Fprintln(p.out, "done: the result was in the action cache")
	case m.GetWorker() != "":
		fmt.Fprintf(p.out, "done: ran for %s on %s\n", text.Duration(ran), printable.Lines(text.Machine(m.GetWorker())))
	default:
		fmt.Fprintln(p.out, "done")
	}
	if o.Page != "" && !p.quiet && !strings.Contains(o.Message, o.Page) { // as the message of a failure does
		fmt.Fprintln(p.out, "See "+printable.Lines(o.Page))
	}
}

// show prints a line. It may omit an unimportant one soon after another, or if out is no terminal.
func (p *progress) show(important bool, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	interval := logInterval
	if p.terminal {
		interval = terminalInterval
	}
	if p.quiet || (!important && now.Sub(p.last) < interval) {
		return
	}
	p.last = now
	line := fmt.Sprintf(format, args...)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		p.open = true
		return
	}
	fmt.Fprintln(p.out, line)
}

// end finishes the line that is open.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.open = false
	}
}
