package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/report"
)

// The compared strategies of Bazel.
const (
	byLocal   = "local"
	bySandbox = "linux-sandbox"
	byRemote  = "remote"
)

// usualJobs is the value of --jobs that forerunner up recommends on a machine with these slots.
const (
	slots     = 2
	usualJobs = 8
)

// A buildCell is a way to build, with its measurements.
type buildCell struct {
	strategy string
	jobs     int    // only for byRemote; the others use Bazel's default
	programs string // folder; only for byRemote
}

// A buildSample has the measurements of one build from scratch.
type buildSample struct {
	wall float64 // seconds
	// CPU time in seconds of Bazel's client and server (bazel), of the server's children (ran), of
	// scheduler and worker in one process (farm), of launchers, and of the launchers' children
	// (commands).
	bazel, ran, farm, launchers, commands float64
	mounts                                []float64 // of each action, in milliseconds
}

func (s buildSample) cpu() float64 { return s.bazel + s.ran + s.farm + s.launchers + s.commands }

// otherJobs are further values of --jobs with rows.
var otherJobs = []int{2, 50, 200, 1000}

// buildCells returns the cells to measure.
func (b *localBench) buildCells() []buildCell {
	if !b.o.Wants(buildRows()...) {
		return nil
	}
	cells := []buildCell{{strategy: byLocal}}
	if b.o.Wants(rowWallSandbox, rowCPUSandbox) {
		cells = append(cells, buildCell{strategy: bySandbox})
	}
	for _, folder := range b.o.folders() {
		if b.o.Wants(rowWallSandbox, rowWallLocal, rowCPUSandbox, rowCPULocal, rowMount, rowMount95) {
			cells = append(cells, buildCell{byRemote, usualJobs, folder})
		}
		for _, jobs := range otherJobs {
			if b.o.Wants(rowOfJobs(jobs)) {
				cells = append(cells, buildCell{byRemote, jobs, folder})
			}
		}
	}
	return cells
}

func (b *localBench) measureBuilds(ctx context.Context) (err error) {
	cells := b.buildCells()
	if len(cells) == 0 {
		return nil
	}
	if _, err := exec.LookPath(b.o.bazel); err != nil {
		return fmt.Errorf("%w: make test-needs installs it, --bazel names another", err)
	}
	z, err := newBazel(ctx, b.o.bazel, b.dir, b.o.packages)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, z.close(ctx)) }()
	for run := -b.o.warm; run < b.o.Runs; run++ {
		for _, c := range turn(cells, run+b.o.warm) {
			s, err := b.build(ctx, z, c)
			if err != nil {
				return fmt.Errorf("%s, --jobs %d: %w", c.strategy, c.jobs, err)
			}
			name := fmt.Sprintf("run %d of %d", run+1, b.o.Runs)
			if run < 0 {
				name = "warming up"
			}
			report.Progress("%s, %s, jobs %d, %s: %.1f s, CPU %.1f s (Bazel %.1f, it ran %.1f, farm %.1f, launchers %.1f, they ran %.1f)",
				name, c.strategy, c.jobs, c.programs, s.wall, s.cpu(), s.bazel, s.ran, s.farm, s.launchers, s.commands)
			if run >= 0 {
				b.builds[c] = append(b.builds[c], s)
			}
		}
	}
	return nil
}

// build takes a sample with a new farm that has never seen the workspace.
func (b *localBench) build(ctx context.Context, z *bazel, c buildCell) (s buildSample, err error) {
	if err := z.clean(ctx); err != nil {
		return s, err
	}
	var up *program.Program
	var flags []string
	if c.strategy == byRemote {
		var address, data string
		if up, address, data, err = b.startUp(ctx, c.programs); err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, up.End(), os.RemoveAll(data)) }()
		flags = []string{"--remote_executor=grpc://" + address, "--noremote_upload_local_results", fmt.Sprintf("--jobs=%d", c.jobs)}
	}
	before, farmBefore, err := usedNow(z, up)
	if err != nil {
		return s, err
	}
	took, client, err := z.build(ctx, c.strategy, b.o.packages*perPackage, flags...)
	if err != nil {
		return s, err
	}
	after, farmAfter, err := usedNow(z, up)
	if err != nil {
		return s, err
	}
	server, farm := after.Less(before), farmAfter.Less(farmBefore)
	s.wall = took.Seconds()
	s.bazel, s.ran = (client + server.Self).Seconds(), (server.Children + server.Ended).Seconds()
	s.farm, s.launchers, s.commands = farm.Self.Seconds(), farm.Children.Seconds(), farm.Ended.Seconds()
	if up != nil {
		var ms map[string][]float64
		if ms, err = stagesOf(up.Log, 0); err == nil {
			s.mounts = ms["mount"]
		}
	}
	return s, err
}

// startUp starts a farm of two slots in one process with a new data folder.
func (b *localBench) startUp(ctx context.Context, programs string) (up *program.Program, address, data string, err error) {
	b.starts++
	data = filepath.Join(b.dir, fmt.Sprintf("up-%d", b.starts))
	up, address, err = startUp(ctx, programs, data, slots)
	return up, address, data, err
}

func startUp(ctx context.Context, programs, data string, slots int) (up *program.Program, address string, err error) {
	return program.Start(ctx, program.UpLine, data+".log", filepath.Join(programs, "forerunner"), "up", "--data", data,
		"--cache-size", "2G", "--slots", fmt.Sprint(slots), "--listen", "127.0.0.1:0", "--http", "", "--log-json")
}

// usedNow returns the usage of Bazel's server and of the farm so far.
func usedNow(z *bazel, up *program.Program) (server, farm program.Usage, err error) {
	if server, err = program.UsageOf(z.server); err == nil && up != nil {
		farm, err = program.UsageOf(up.PID())
	}
	return server, farm, err
}
