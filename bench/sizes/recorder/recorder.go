package recorder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
)

// Options are the options of Record.
type Options struct {
	Out    string   // CSV file; commands that are in it and not measured again stay
	Data   string   // parent of the temporary folder
	Module string   // folder of this repository, whose packages are compiled
	Only   []string // kinds and targets; empty: all
	Warm   bool     // run each command once before, so that its files are in the page cache
	Rounds int
	// Busy is how many CPUs of this machine the commands may use, and Speed the share of one that a
	// recorded CPU has.
	Busy, Speed float64
	MemoryMiB   int // for each CPU
}

// sizes are the CPUs of the machines.
var sizes = []int{1, 2, 4, 8}

// A recorder measures works.
type recorder struct {
	Options
	dir    string // with the folder shared by works
	parent *cgroup.Parent
	caches []string            // variables with which go finds what is compiled already
	cpus   *semaphore.Weighted // CPUs of recorded machines that may be busy
	runs   chan recording.Run
}

// Record measures all works and writes the recording. If it fails in between, it writes the works
// that are complete.
func Record(ctx context.Context, o Options) (err error) {
	largest := float64(sizes[len(sizes)-1])
	if o.Rounds < 1 || o.MemoryMiB < 1 || !(o.Speed > 0 && o.Speed <= 1) || !(o.Busy >= o.Speed*largest) {
		return fmt.Errorf("record: %d rounds, %d MiB, a speed of %g and %g busy CPUs are impossible for a machine of %g CPUs",
			o.Rounds, o.MemoryMiB, o.Speed, o.Busy, largest)
	}
	list := slices.DeleteFunc(works(), func(w work) bool {
		return len(o.Only) > 0 && !slices.Contains(o.Only, w.kind) && !slices.Contains(o.Only, w.target)
	})
	if len(list) == 0 {
		return fmt.Errorf("record: no command is of a kind or target in %q", o.Only)
	}
	old, err := readOld(o.Out)
	if err != nil {
		return err
	}
	r := &recorder{Options: o, cpus: semaphore.NewWeighted(int64(o.Busy / o.Speed)), runs: make(chan recording.Run, len(list)*len(sizes)*o.Rounds)}
	if r.Module, err = filepath.Abs(o.Module); err != nil {
		return err
	}
	if r.caches, err = goCaches(ctx); err != nil {
		return err
	}
	// The name is that of a recording that was killed, too, whose groups and processes go then.
	if r.parent, err = cgroup.Open(cgroup.Options{Name: "record"}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.parent.Close()) }()
	dir, leave, err := report.WorkFolder(o.Data, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	r.dir = dir
	list, err = r.prepare(ctx, list)
	if err == nil {
		err = r.measureAll(ctx, list)
	}
	close(r.runs)
	var runs []recording.Run
	for run := range r.runs {
		runs = append(runs, run)
	}
	return errors.Join(err, r.write(old, runs))
}

// readOld reads the runs of an earlier recording; there may be none.
func readOld(file string) ([]recording.Run, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	runs, err := recording.Read(f)
	return runs, errors.Join(err, f.Close())
}

// write replaces commands of the old recording by those that are complete.
func (r *recorder) write(old, runs []recording.Run) error {
	count := map[[2]string]int{}
	name := func(run recording.Run) [2]string { return [2]string{run.Kind, run.Target} }
	for _, run := range runs {
		count[name(run)]++
	}
	whole := func(run recording.Run) bool { return count[name(run)] == r.Rounds*len(sizes) }
	runs = slices.DeleteFunc(runs, func(run recording.Run) bool { return !whole(run) })
	runs = append(runs, slices.DeleteFunc(old, whole)...)
	f, err := os.Create(r.Out)
	if err != nil {
		return err
	}
	about := fmt.Sprintf("made by \"bench sizes record\": CPUs of a speed of %g, %d MiB for each", r.Speed, r.MemoryMiB)
	return errors.Join(recording.Write(f, about, runs), f.Close())
}

// prepare makes what works share, and runs each work once. It returns those that this machine can
// run, in an order that mixes kinds.
func (r *recorder) prepare(ctx context.Context, list []work) (can []work, err error) {
	if err := os.Mkdir(r.shared(), 0o755); err != nil {
		return nil, err
	}
	var setups []work
	for _, w := range list {
		if w.setup != "" && !slices.ContainsFunc(setups, func(o work) bool { return o.script == w.setup }) {
			setups = append(setups, work{kind: "setup of", target: w.kind, script: w.setup})
		}
	}
	if _, err := r.working(ctx, setups); err != nil {
		return nil, err
	}
	can = list
	if r.Warm {
		if can, err = r.working(ctx, list); err != nil {
			return nil, err
		}
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(can), func(i, j int) { can[i], can[j] = can[j], can[i] })
	return can, nil
}

// working runs works without limits, two at once, and returns those that succeed.
func (r *recorder) working(ctx context.Context, list []work) (can []work, err error) {
	faults := make([]error, len(list))
	var g errgroup.Group
	g.SetLimit(2)
	for i, w := range list {
		g.Go(func() error {
			faults[i] = r.once(ctx, w)
			return nil
		})
	}
	_ = g.Wait() // faults has the errors
	for i, w := range list {
		if faults[i] == nil {
			can = append(can, w)
		} else {
			report.Progress("left out: %s %s: %v", w.kind, w.target, faults[i])
		}
	}
	return can, ctx.Err()
}

func (r *recorder) shared() string { return filepath.Join(r.dir, "shared") }

// once runs a work without limits. None of its processes is left afterwards.
func (r *recorder) once(ctx context.Context, w work) (err error) {
	dir, err := w.lay(r.dir, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	slot, err := r.parent.Slot(filepath.Base(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slot.Close()) }()
	launcher, err := runner.StartLauncher(ctx, runner.LauncherOptions{Cgroup: slot})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launcher.Close(context.WithoutCancel(ctx))) }()
	said := filepath.Join(dir, ".said")
	result, err := launcher.Run(ctx, runner.Command{
		Args: []string{"/bin/sh", "-ec", "exec 2>&1\n" + w.script}, Env: r.environment(dir, 0, 2, 0), Dir: dir, Stdout: said,
	})
	if err == nil && (result.Cause != runner.Exited || result.ExitCode != 0) {
		text, _ := os.ReadFile(said)
		err = fmt.Errorf("%v, exit code %d: %s%s", result.Cause, result.ExitCode, program.Tail(text), result.Err)
	}
	return err
}

func (r *recorder) environment(dir string, round, cpus int, slow float64) []string {
	return append(slices.Clip(r.caches),
		"PATH=/usr/local/go/bin:/usr/bin:/bin", "HOME="+dir, "TMPDIR="+dir, "LC_ALL=C",
		"SHARED="+r.shared(), "MODULE="+r.Module,
		"ROUND="+strconv.Itoa(round), "CPUS="+strconv.Itoa(cpus), "SLOW="+strconv.FormatFloat(slow, 'g', -1, 64),
		"GOMAXPROCS="+strconv.Itoa(cpus), "UV_THREADPOOL_SIZE=4",
	)
}

// goCaches returns the variables with which go finds what is compiled already.
func goCaches(ctx context.Context) (list []string, err error) {
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} {
		said, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			return nil, fmt.Errorf("go env %s: %w", name, err)
		}
		list = append(list, name+"="+strings.TrimSpace(string(said)))
	}
	return list, nil
}

// measureAll measures all works, as many at once as r.cpus permits.
func (r *recorder) measureAll(ctx context.Context, list []work) error {
	g, ctx := errgroup.WithContext(ctx)
	done, all := 0, len(list)*r.Rounds*len(sizes)
	for _, w := range list {
		for round := 1; round <= r.Rounds; round++ {
			for _, cpus := range sizes {
				need := int64(1)
				if w.wide {
					need = int64(cpus)
				}
				if r.cpus.Acquire(ctx, need) != nil {
					return errors.Join(context.Cause(ctx), g.Wait())
				}
				done++
				report.Progress("%d of %d: %s %s, round %d, %d CPUs", done, all, w.kind, w.target, round, cpus)
				g.Go(func() error {
					defer r.cpus.Release(need)
					run, err := r.measure(ctx, w, round, cpus)
					if errors.Is(err, errUnfit) {
						report.Progress("left out: %s %s, round %d, %d CPUs: %v", w.kind, w.target, round, cpus, err)
						return nil
					}
					if err != nil {
						return fmt.Errorf("%s %s, round %d, %d CPUs: %w", w.kind, w.target, round, cpus, err)
					}
					r.runs <- run
					return nil
				})
			}
		}
	}
	return g.Wait()
}

// measure runs a work on a machine.
func (r *recorder) measure(ctx context.Context, w work, round, cpus int) (_ recording.Run, err error) {
	run := recording.Run{Kind: w.kind, Target: w.target, Round: round, CPUs: cpus, MemoryMiB: float64(r.MemoryMiB * cpus)}
	dir, err := w.lay(r.dir, round)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	slot, err := r.parent.Slot(filepath.Base(dir))
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, slot.Close()) }()
	if err := slot.Limit(cgroup.Limits{Memory: int64(r.MemoryMiB*cpus) << 20, Pids: 1000}); err != nil {
		return run, err
	}
	own, err := newThreads(slot, cpus, r.Speed)
	if err != nil {
		return run, err
	}
	launcher, err := runner.StartLauncher(ctx, runner.LauncherOptions{Cgroup: slot})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, launcher.Close(context.WithoutCancel(ctx))) }()
	own.fork = launcher.Pid()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- own.run(watching) }()
	result, err := launcher.Run(ctx, runner.Command{
		Args: []string{"/bin/sh", "-ec", w.script}, Env: r.environment(dir, round, cpus, 1/r.Speed), Dir: dir,
		Timeout: 10 * time.Minute,
	})
	stop()
	if err := errors.Join(err, <-watched); err != nil {
		return run, err
	}
	if run, err = r.fill(run, result); err == nil && !w.wide {
		// Until a thread has its group it may be too fast, which matters in short commands.
		run.Seconds = max(run.Seconds, run.CPUSeconds)
	}
	return run, err
}

// errUnfit means that a work cannot be part of a recording.
var errUnfit = errors.New("must end by itself, and succeed on the largest machine")

// fill adds the figures of a result.
func (r *recorder) fill(run recording.Run, result runner.Result) (recording.Run, error) {
	used := result.Group
	switch {
	case used == nil:
		return run, errors.New("nothing measured it")
	case used.OOMKills > 0:
		run.End = recording.Killed
	case result.Cause == runner.Exited && result.ExitCode == 0:
		run.End = recording.Done
	case result.Cause == runner.Exited:
		run.End = recording.Failed
	}
	if run.End == "" || run.End != recording.Done && run.CPUs == sizes[len(sizes)-1] {
		return run, fmt.Errorf("%w: %v, exit code %d, %d processes killed", errUnfit, result.Cause, result.ExitCode, used.OOMKills)
	}
	slowed := func(d time.Duration) float64 { return d.Seconds() * r.Speed }
	run.Seconds, run.CPUSeconds = slowed(result.Ended.Sub(result.Started)), (used.User + used.System).Seconds()
	run.ThrottledSeconds = min(slowed(used.Throttled), run.Seconds)
	run.StalledSeconds = slowed((used.MemorySome + used.MemoryFull) / 2)
	run.PeakMiB = float64(used.MemoryPeak) / (1 << 20)
	return run, nil
}
