package live

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/pause"
	livepb "github.com/forerunner-build/forerunner/proto/live"
)

const (
	// A scheduler that does not answer is asked again after minBackoff, then after twice as long,
	// up to maxBackoff.
	minBackoff, maxBackoff = 100 * time.Millisecond, 2 * time.Second
	// maxWatches is how many streams of output a worker shows at once: twice as many as a scheduler
	// allows, because the worker learns of their end a little later.
	maxWatches = 64
	// chunkBytes is the maximum size of a chunk of a stream.
	chunkBytes = 64 << 10
	// growthInterval is the interval of checks for more output. askInterval is the interval of
	// asking whether a reader is left while there is no more output.
	growthInterval, askInterval = 50 * time.Millisecond, time.Second
)

// Outputs show the output of commands to clients of the scheduler. It is a hint: none of its
// failures reaches an action, and a slow reader delays only the goroutine that reads for it.
type Outputs struct {
	client livepb.OutputsClient // nil: output cannot be watched
	report func() *livepb.Report
	call   func(position int) // makes a position call the scheduler now
	log    *zap.Logger

	mu      sync.Mutex
	running map[int]*Printing // by position; guarded by mu
}

// A Printing is the output of one run of a command. Its methods may be called for nil: then the
// output cannot be watched.
type Printing struct {
	Action         string // "<hash>/<size>"
	Run            int    // number of the run, from 1
	Stdout, Stderr string // the files that it prints to

	of       *Outputs
	position int
	ended    chan struct{} // closed when it prints no more
	decided  chan struct{} // closed when counts is set
	counts   bool
	watched  bool // guarded by Outputs.mu
}

// New returns Outputs that cannot be watched before Run, and never without a client. report returns
// the worker's figures for pages; it may be called concurrently.
func New(client livepb.OutputsClient, report func() *livepb.Report, log *zap.Logger) *Outputs {
	return &Outputs{client: client, report: report, log: log, running: map[int]*Printing{}, call: func(int) {}}
}

// OnCall registers f, which must not wait. It is called when the scheduler wants a position to call
// now. Call OnCall before Run.
func (l *Outputs) OnCall(f func(position int)) {
	l.call = f
}

// Begin makes a run of a position's command watchable; its files may not exist yet. The caller
// calls End when the command has ended, and Decide after it. Nil: it cannot be watched.
func (l *Outputs) Begin(position int, p Printing) *Printing {
	if l.client == nil {
		return nil
	}
	p.of, p.position = l, position
	p.ended, p.decided = make(chan struct{}), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[position] = &p
	return &p
}

// End ends the output of the command. It reports whether a client has watched it, and may still be
// reading its files.
func (p *Printing) End() (watched bool) {
	if p == nil {
		return false
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.running, p.position)
	close(p.ended)
	return p.watched
}

// Decide sets whether the run counts; otherwise the action runs again, and watching clients learn
// that at once.
func (p *Printing) Decide(counts bool) {
	if p != nil {
		p.counts = counts
		close(p.decided)
	}
}

// find returns the command that a watch is for; nil: it does not run now.
func (l *Outputs) find(w *livepb.Watch) *Printing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.running[int(w.GetWorker())]; p != nil && p.Action == w.GetAction() {
		p.watched = true
		return p
	}
	return nil
}

// Run serves watches until ctx ends. A scheduler that does not know the service is
// not asked again.
func (l *Outputs) Run(ctx context.Context, prefix string, positions []map[string]string) {
	if l.client == nil {
		return
	}
	hello := &livepb.ServeRequest{InstanceNamePrefix: prefix}
	for _, id := range positions {
		hello.Workers = append(hello.Workers, &livepb.Identity{WorkerId: id})
	}
	for rest := minBackoff; ; rest = min(2*rest, maxBackoff) {
		began := time.Now()
		err := l.serve(ctx, hello)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if time.Since(began) > maxBackoff {
			rest = minBackoff
		}
		l.log.Debug("output of commands cannot be watched, will try again", zap.Duration("in", rest), zap.Error(err))
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

// serve makes one call and shows requested streams, until the call breaks.
func (l *Outputs) serve(ctx context.Context, hello *livepb.ServeRequest) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.client.Serve(ctx, hello)
	if err != nil {
		return err
	}
	watches.Go(func() { l.tell(ctx) })
	free := make(chan struct{}, maxWatches)
	for {
		w, err := stream.Recv()
		if err != nil {
			return err
		}
		if w.GetCall() {
			l.call(int(w.GetWorker()))
			continue
		}
		select {
		case free <- struct{}{}:
			watches.Go(func() {
				defer func() { <-free }()
				l.show(ctx, w)
			})
		default:
			l.push(ctx, &livepb.Chunk{Id: w.GetId(), Refused: true})
		}
	}
}

// show sends the output of a command until it ends, or the client has enough.
func (l *Outputs) show(ctx context.Context, w *livepb.Watch) {
	ticker := time.NewTicker(growthInterval)
	defer ticker.Stop()
	f := &growing{offset: w.GetOffset(), run: w.GetRun()}
	defer f.close()
	buffer, asked := make([]byte, chunkBytes), time.Now()
	for {
		if f.of == nil {
			f.follow(l.find(w))
		}
		n, end, err := f.read(buffer, w.GetStderr())
		if err != nil {
			l.log.Debug("output of a command cannot be read", zap.Error(err))
			return
		}
		again := end && !f.of.counts
		if again {
			f.leave()
		}
		if n > 0 || end || time.Since(asked) >= askInterval {
			c := &livepb.Chunk{Id: w.GetId(), Run: f.run, Data: buffer[:n], End: end && !again}
			if !l.push(ctx, c) || c.GetEnd() {
				return
			}
			asked = time.Now()
		}
		if n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.decided():
		}
	}
}

// push sends a chunk and reports whether another one is wanted.
func (l *Outputs) push(ctx context.Context, c *livepb.Chunk) bool {
	pushed, err := l.client.Push(ctx, c)
	return err == nil && !pushed.GetDone()
}

// A growing is the output of a command on a stream, of whichever run counts. It begins when it is
// first watched.
type growing struct {
	of     *Printing // nil: none runs
	file   *os.File  // nil: it did not exist yet
	run    uint32    // the run of offset; 0: unknown
	offset int64     // of the next read
}

// follow continues with a run, from its beginning unless it is the same as before. Nil: none runs.
func (g *growing) follow(p *Printing) {
	if p == nil {
		return
	}
	if run := uint32(p.Run); run != g.run {
		if g.run != 0 {
			g.offset = 0
		}
		g.run = run
	}
	g.of = p
}

// leave turns to the run after this one, which does not count.
func (g *growing) leave() {
	g.close()
	g.of, g.file, g.run, g.offset = nil, nil, uint32(g.of.Run)+1, 0
}

// decided is closed when it is known whether the run counts; nil: none runs.
func (g *growing) decided() <-chan struct{} {
	if g.of == nil {
		return nil
	}
	return g.of.decided
}

// read reads the available output. end: the run is decided, and there is nothing after the n bytes
// if it counts, or nothing that counts.
func (g *growing) read(b []byte, stderr bool) (n int, end bool, err error) {
	if g.of == nil {
		return 0, false, nil
	}
	over := false
	select {
	case <-g.of.ended: // before the read, so that the read gets everything
		over = true
	default:
	}
	select {
	case <-g.of.decided:
		if !g.of.counts {
			return 0, true, nil
		}
		end = true
	default:
	}
	if g.file == nil {
		name := g.of.Stdout
		if stderr {
			name = g.of.Stderr
		}
		if g.file, err = os.Open(name); err != nil && !over && errors.Is(err, fs.ErrNotExist) {
			return 0, false, nil
		} else if err != nil {
			return 0, false, err // the command was quicker than we
		}
	}
	n, err = g.file.ReadAt(b, g.offset)
	g.offset += int64(n)
	if errors.Is(err, io.EOF) {
		return n, end, nil
	}
	return n, false, err
}

func (g *growing) close() {
	if g.file != nil {
		_ = g.file.Close() // it was only read
	}
}
