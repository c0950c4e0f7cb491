package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// The lines that programs print when they are ready.
var (
	// forerunner up prints UpLine and the scheduler prints ServesLine, both with their address; a
	// worker with --log-json prints ReadyLine.
	UpLine     = regexp.MustCompile(`(?m)^build --remote_executor=grpc://(\S+)$`)
	ServesLine = regexp.MustCompile(`(?m)^serving on grpc://(\S+)$`)
	ReadyLine  = regexp.MustCompile(`"msg":"(worker is ready)"`)
)

const (
	startTimeout = 2 * time.Minute
	endTimeout   = time.Minute
)

// A Program is a process that is measured.
type Program struct {
	Log  string // file with its output
	cmd  *exec.Cmd
	gone chan struct{}
}

// Start starts a program that writes its output to the file log. It waits for output that matches
// said, and returns the match's first group. The caller must call End.
func Start(ctx context.Context, said *regexp.Regexp, log string, program ...string) (_ *Program, found string, err error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	p := &Program{Log: log, cmd: exec.Command(program[0], program[1:]...), gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must reach only this process, which ends the program
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() {
		defer close(p.gone)
		_ = p.cmd.Wait() // ProcessState has the outcome
	}()
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil, "", errors.Join(err, p.End())
		}
		if m := said.FindSubmatch(text); m != nil {
			return p, string(m[1]), nil
		}
		select {
		case <-p.gone:
			return nil, "", fmt.Errorf("%s ended: %s", filepath.Base(program[0]), Tail(text))
		case <-ctx.Done():
			return nil, "", errors.Join(ctx.Err(), p.End())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, "", errors.Join(fmt.Errorf("%s does not serve after %v", filepath.Base(program[0]), startTimeout), p.End())
}

// Tail returns the end of a program's output.
func Tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

// PID returns the ID of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// End ends the process and waits until it has ended.
func (p *Program) End() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended, which is reported below
	select {
	case <-p.gone:
	case <-time.After(endTimeout):
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
	if !p.cmd.ProcessState.Success() {
		text, _ := os.ReadFile(p.Log)
		return fmt.Errorf("%s: %v: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, Tail(text))
	}
	return nil
}
