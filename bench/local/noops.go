package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
)

// A work is what small actions do. Names of rows begin with it.
type work string

const (
	noops work = "noop" // /bin/true without inputs
	trees work = "tree" // reads a few files of a large input root

	// The same through forerunner up.
	upNoops work = "up_noop"
	upTrees work = "up_tree"
)

// works are all works, in the order of their rows.
var works = []work{noops, trees, upNoops, upTrees}

// inOne reports whether the farm of a work is one program.
func (w work) inOne() bool { return w == upNoops || w == upTrees || w == mixed }

// A noopCell is a farm with small actions.
type noopCell struct {
	work     work
	clients  int
	programs string
}

// slots is how many slots the worker has.
func (c *noopCell) slots() int {
	if c.work == mixed {
		return mixedSlots
	}
	return c.clients
}

// A noopSample has the measurements of one run; each value is per action.
type noopSample struct {
	ms                 []float64            // from Execute to its response
	stages             map[string][]float64 // milliseconds in the worker's stages, and in beforeWorker and afterWorker
	perSecond          float64
	scheduler, worker  used
	launchers, clients used
	commands           float64 // CPU time in microseconds
}

// used has the CPU time in microseconds, and the number of context switches.
type used struct{ us, switches float64 }

// The stages of an action that are not in the worker's log.
const (
	beforeWorker = "queue"  // from Execute until the worker has the action
	afterWorker  = "answer" // from the end on the worker until the client has the response
)

// manyClients is enough clients to keep all slots busy.
const manyClients = 8

func (b *localBench) noopCells() []noopCell {
	var cells []noopCell
	for _, folder := range b.o.folders() {
		for _, w := range works {
			if b.o.Wants(rowsOfOneClient(w)...) {
				cells = append(cells, noopCell{w, 1, folder})
			}
			if b.o.Wants(w.row(rate)) {
				cells = append(cells, noopCell{w, manyClients, folder})
			}
		}
		if b.o.Wants(mixed.row(mixedRate), mixed.row(mixedCPU)) {
			cells = append(cells, noopCell{mixed, mixedClients, folder})
		}
	}
	return cells
}

// measureNoops takes all samples, and in between samples of the floors.
func (b *localBench) measureNoops(ctx context.Context) error {
	cells := b.noopCells()
	if len(cells) == 0 && !b.o.Wants(floor.Names()...) {
		return nil
	}
	for run := range b.o.Runs {
		for _, c := range turn(cells, run) {
			s, err := b.noop(ctx, c)
			if err != nil {
				return fmt.Errorf("%s of %d clients: %w", c.work, c.clients, err)
			}
			report.Progress("run %d of %d, %s of %d clients, %s: %.2f ms, %.0f/s, µs of CPU: scheduler %.0f, worker %.0f, launchers %.0f, client %.0f, commands %.0f",
				run+1, b.o.Runs, c.work, c.clients, c.programs, report.Median(s.ms), s.perSecond,
				s.scheduler.us, s.worker.us, s.launchers.us, s.clients.us, s.commands)
			b.noops[c] = append(b.noops[c], s)
		}
		if err := b.floors.Measure(ctx, filepath.Join(b.dir, "floors"), b.o.noops); err != nil {
			return err
		}
	}
	return nil
}

// A farm is a scheduler with storage and a worker, each in a process of its own or, without a
// scheduler, both in that of the worker.
type farm struct {
	dir               string
	scheduler, worker *program.Program
	conn              *grpc.ClientConn
}

func (b *localBench) startFarm(ctx context.Context, c noopCell) (_ *farm, err error) {
	b.starts++
	f := &farm{dir: filepath.Join(b.dir, "farm-"+strconv.Itoa(b.starts))}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.end())
		}
	}()
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		return nil, err
	}
	if c.work.inOne() {
		var address string
		if f.worker, address, err = startUp(ctx, c.programs, filepath.Join(f.dir, "up"), c.slots()); err != nil {
			return nil, err
		}
		f.conn, err = dial.Dial(address)
		return f, err
	}
	var address string
	if f.scheduler, address, err = program.Start(ctx, program.ServesLine, filepath.Join(f.dir, "scheduler.log"), filepath.Join(c.programs, "forerunner-scheduler"),
		"--data", filepath.Join(f.dir, "scheduler"), "--cache-size", "1G", "--listen", "127.0.0.1:0", "--http", "", "--log-json"); err != nil {
		return nil, err
	}
	if f.worker, _, err = program.Start(ctx, program.ReadyLine, filepath.Join(f.dir, "worker.log"), filepath.Join(c.programs, "forerunner-worker"),
		"--scheduler", "grpc://"+address, "--storage", "grpc://"+address, "--data", filepath.Join(f.dir, "worker"),
		"--cache-size", "1G", "--slots", strconv.Itoa(c.slots()), "--http", "", "--log-json"); err != nil {
		return nil, err
	}
	f.conn, err = dial.Dial(address)
	return f, err
}

func (f *farm) end() error {
	var errs []error
	if f.conn != nil {
		errs = append(errs, f.conn.Close())
	}
	for _, p := range []*program.Program{f.worker, f.scheduler} {
		if p != nil {
			errs = append(errs, p.End())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// noopsBefore is the number of actions before the measured ones.
const noopsBefore = 40

// noop takes a sample with a new farm.
func (b *localBench) noop(ctx context.Context, c noopCell) (s noopSample, err error) {
	f, err := b.startFarm(ctx, c)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.end()) }()
	storage := casclient.New(f.conn, casclient.Options{NoCompression: true})
	var actions []digest.Digest
	switch n := noopsBefore + b.o.noops; c.work {
	case noops, upNoops:
		actions, err = testbed.StoreVariants(ctx, storage, n, &repb.Command{Arguments: []string{"/bin/true"}})
	case trees, upTrees:
		actions, err = storeTrees(ctx, storage, n)
	case mixed:
		actions, err = storeMixed(ctx, storage, n)
	}
	if err != nil {
		return s, err
	}
	if _, err := f.execute(ctx, actions[:noopsBefore], c.clients); err != nil {
		return s, err
	}
	before, err := f.usedNow()
	if err != nil {
		return s, err
	}
	began := time.Now()
	answers, err := f.execute(ctx, actions[noopsBefore:], c.clients)
	if err != nil {
		return s, err
	}
	s.perSecond = float64(b.o.noops) / time.Since(began).Seconds()
	after, err := f.usedNow()
	if err != nil {
		return s, err
	}
	s.count(before, after, float64(b.o.noops))
	if s.stages, err = stagesOf(f.worker.Log, noopsBefore); err != nil {
		return s, err
	}
	for i, a := range answers {
		if result := a.response.GetResult(); result.GetExitCode() != 0 {
			return s, fmt.Errorf("action %d: exit code %d: %s", i, result.GetExitCode(), result.GetStderrRaw())
		}
		m := a.response.GetResult().GetExecutionMetadata()
		s.ms = append(s.ms, report.Milliseconds(a.known.Sub(a.asked)))
		s.stages[beforeWorker] = append(s.stages[beforeWorker], report.Milliseconds(m.GetWorkerStartTimestamp().AsTime().Sub(a.asked)))
		s.stages[afterWorker] = append(s.stages[afterWorker], report.Milliseconds(a.known.Sub(m.GetWorkerCompletedTimestamp().AsTime())))
	}
	return s, nil
}

// farmUsed has the usage of a farm's programs, and of the clients in this process.
type farmUsed struct{ scheduler, worker, clients program.Usage }

func (f *farm) usedNow() (u farmUsed, err error) {
	var errs [2]error
	if f.scheduler != nil {
		u.scheduler, errs[0] = program.UsageOf(f.scheduler.PID())
	}
	u.worker, errs[1] = program.UsageOf(f.worker.PID())
	u.clients = program.Usage{Self: report.CPUTime(), Switches: program.Switches(os.Getpid())}
	return u, errors.Join(errs[:]...)
}

// count adds the average usage per action of n actions.
func (s *noopSample) count(before, after farmUsed, n float64) {
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 / n }
	scheduler, worker, clients := after.scheduler.Less(before.scheduler), after.worker.Less(before.worker), after.clients.Less(before.clients)
	s.scheduler = used{us(scheduler.Self), float64(scheduler.Switches) / n}
	s.worker = used{us(worker.Self), float64(worker.Switches) / n}
	s.launchers = used{us(worker.Children), float64(worker.Below) / n}
	s.clients = used{us(clients.Self), float64(clients.Switches) / n}
	s.commands = us(worker.Ended)
}

// An answered action has the times of its request and its response at the client.
type answered struct {
	asked, known time.Time
	response     *repb.ExecuteResponse
}

// execute has clients execute the actions, each client one at a time.
func (f *farm) execute(ctx context.Context, actions []digest.Digest, clients int) ([]answered, error) {
	answers := make([]answered, len(actions))
	g, ctx := errgroup.WithContext(ctx)
	for client := range clients {
		g.Go(func() error {
			for i := client; i < len(actions); i += clients {
				a := &answers[i]
				a.asked = time.Now()
				stream, err := repb.NewExecutionClient(f.conn).Execute(ctx,
					&repb.ExecuteRequest{ActionDigest: actions[i].Proto(), SkipCacheLookup: true})
				if err == nil {
					a.response, err = load.AwaitAnswer(stream)
				}
				if err != nil {
					return fmt.Errorf("execute action %d: %w", i, err)
				}
				a.known = time.Now()
			}
			return nil
		})
	}
	return answers, g.Wait()
}
