package scheduler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
)

// A usage is the resource usage of a process so far, and its present memory. Memory is in bytes.
// Live is the heap after the last garbage collection.
type usage struct {
	CPU                   time.Duration
	Resident, Live, Stack float64
}

// A schedulerProcess is a scheduler in a separate process, so that its usage is separate from that
// of clients and workers.
type schedulerProcess struct {
	cmd  *exec.Cmd
	ask  io.WriteCloser
	hear *json.Decoder
	conn *grpc.ClientConn
	// address is the gRPC address of the scheduler.
	address string
}

// startScheduler runs this program as a scheduler with some flags. The scheduler stores its data in
// dir.
func startScheduler(ctx context.Context, dir string, flags ...string) (_ *schedulerProcess, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	p := &schedulerProcess{cmd: exec.CommandContext(ctx, program, append([]string{childName, "--data", dir}, flags...)...)}
	p.cmd.Stderr = log
	if p.ask, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.hear = json.NewDecoder(answers)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start scheduler: %w", err)
	}
	if err := p.hear.Decode(&p.address); err != nil {
		return nil, errors.Join(fmt.Errorf("start scheduler: %w (see %s)", err, log.Name()), p.cmd.Wait())
	}
	if p.conn, err = dial.Dial(p.address); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close ends the process and waits for it.
func (p *schedulerProcess) close() error {
	var err error
	if p.conn != nil {
		err = p.conn.Close()
	}
	err = errors.Join(err, p.ask.Close())
	if waitErr := p.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("scheduler: %w", waitErr))
	}
	return err
}

// used requests the usage of the process.
func (p *schedulerProcess) used(ctx context.Context) (u usage, err error) {
	if _, err = fmt.Fprintln(p.ask, "usage"); err == nil {
		err = p.hear.Decode(&u)
	}
	if err != nil {
		return u, errors.Join(fmt.Errorf("ask the scheduler what it uses: %w", err), ctx.Err())
	}
	return u, nil
}

// profile makes the process write a CPU profile to path until the next call of used, and then a
// heap profile to path.heap.
func (p *schedulerProcess) profile(path string) error {
	_, err := fmt.Fprintln(p.ask, path)
	return err
}

// childName is the command that this program runs in a child process.
const childName = "scheduler-child"

// NewChildCommand returns the command that this program runs in a child process: it serves as
// forerunner-scheduler does with the same flags, until its standard input ends. Each line of input
// is "usage", which it answers, or a path for profiles.
func NewChildCommand() *cobra.Command {
	s := &farm.Scheduler{}
	cmd := flags.NewCommand(childName, "", "", s.Settings(), func(cmd *cobra.Command, _ []string) error {
		return serveScheduler(cmd.Context(), s)
	})
	cmd.Hidden = true
	return cmd
}

func serveScheduler(ctx context.Context, s *farm.Scheduler) (err error) {
	if s.Logger, err = (flags.Logging{}).NewLogger(); err != nil {
		return err
	}
	defer func() { _ = s.Logger.Sync() }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer serve.PaceMemory(ctx, report.MemoryBytes, true)()
	out := json.NewEncoder(os.Stdout)
	s.Listen, s.HTTP, s.Storage.CacheSize = "127.0.0.1:0", "", "8G"
	s.Config.MaxPerClient = 2 * openStreams // here all clients have the same address
	answered := make(chan error, 1)
	err = s.Run(ctx, ctx, func(address string) error {
		if err := out.Encode(address); err != nil {
			return err
		}
		go func() {
			defer stop()
			answered <- answerUsage(os.Stdin, out)
		}()
		return nil
	})
	if err != nil {
		return err
	}
	return <-answered
}

// answerUsage executes the lines of in until in ends.
func answerUsage(in io.Reader, out *json.Encoder) error {
	lines := bufio.NewScanner(in)
	var endProfile func() error
	var profile string
	for lines.Scan() {
		if line := lines.Text(); line != "usage" {
			var err error
			profile = line
			if endProfile, err = report.ProfileCPU(profile); err != nil {
				return err
			}
			continue
		}
		u, err := usageNow()
		if err != nil {
			return err
		}
		if err := out.Encode(u); err != nil {
			return err
		}
		if endProfile != nil {
			if err := errors.Join(endProfile(), writeHeap(profile+".heap")); err != nil {
				return err
			}
			endProfile = nil
		}
	}
	return lines.Err()
}

// usageNow returns the usage of this process.
func usageNow() (usage, error) {
	kib, err := report.ResidentKiB()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return usage{
		CPU: report.CPUTime(), Resident: kib * 1024,
		Live: float64(samples[0].Value.Uint64()), Stack: float64(samples[1].Value.Uint64()),
	}, err
}

func writeHeap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
