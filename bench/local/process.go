package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// What the programs print when they serve.
var (
	upLine     = regexp.MustCompile(`(?m)^build --remote_executor=grpc://(\S+)$`)
	servesLine = regexp.MustCompile(`(?m)^serving on grpc://(\S+)$`)
	readyLine  = regexp.MustCompile(`"msg":"(worker is ready)"`)
)

const (
	startTimeout = 2 * time.Minute
	endTimeout   = time.Minute
)

// A process is a program of the farm that is measured.
type process struct {
	cmd  *exec.Cmd
	log  string // file with all that it prints
	gone chan struct{}
}

// start starts a program, which logs to a file, and returns what says in it that it serves.
func start(ctx context.Context, said *regexp.Regexp, log string, program ...string) (_ *process, found string, err error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	p := &process{cmd: exec.Command(program[0], program[1:]...), log: log, gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for this process, which ends it
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() {
		defer close(p.gone)
		_ = p.cmd.Wait() // ProcessState tells
	}()
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil, "", errors.Join(err, p.end())
		}
		if m := said.FindSubmatch(text); m != nil {
			return p, string(m[1]), nil
		}
		select {
		case <-p.gone:
			return nil, "", fmt.Errorf("%s ended: %s", filepath.Base(program[0]), tail(text))
		case <-ctx.Done():
			return nil, "", errors.Join(ctx.Err(), p.end())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, "", errors.Join(fmt.Errorf("%s does not serve after %v", filepath.Base(program[0]), startTimeout), p.end())
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

func (p *process) pid() int { return p.cmd.Process.Pid }

// end has the process end, and waits for that.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone, which is told below
	select {
	case <-p.gone:
	case <-time.After(endTimeout):
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
	if !p.cmd.ProcessState.Success() {
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s: %v: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, tail(text))
	}
	return nil
}

// stages are those of an action on the worker, in their order (docs/METRICS.md).
var stages = []string{"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report"}

// stagesOf returns how long each action was in each stage, in milliseconds, from the log that p writes; the lines
// of the first skip actions do not count.
func (p *process) stagesOf(skip int) (map[string][]float64, error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil, err
	}
	ms := map[string][]float64{}
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"msg":"action finished"`)) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		said := map[string]any{}
		if err := json.Unmarshal(line, &said); err != nil {
			return nil, fmt.Errorf("read the log of an action: %w", err)
		}
		for _, stage := range stages {
			seconds, ok := said[stage].(float64)
			if !ok {
				return nil, fmt.Errorf("the log of an action has no stage %s: %s", stage, line)
			}
			ms[stage] = append(ms[stage], seconds*1000)
		}
	}
	return ms, nil
}
