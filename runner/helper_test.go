package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
)

// helperVar makes this test binary a worker that the test kills. Its value is the cgroup version,
// -1 for no group, or inSandbox; its arguments are the command.
const helperVar = "RUNNER_TEST_WORKER"

const inSandbox = -2

// procsVar makes this test binary print how many CPUs the Go runtime sees and uses.
const procsVar = "RUNNER_TEST_PROCS"

// guardedVar makes this test binary a worker whose launcher dies.
const guardedVar = "RUNNER_TEST_GUARDED"

func helperMain() {
	if os.Getenv(guardedVar) != "" {
		fmt.Println(guardedWorker())
		os.Exit(0)
	}
	if os.Getenv(procsVar) != "" {
		fmt.Println(runtime.NumCPU(), runtime.GOMAXPROCS(0))
		os.Exit(0)
	}
	if os.Getenv(writerVar) != "" {
		if err := writerMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	value, ok := os.LookupEnv(helperVar)
	if !ok {
		return
	}
	if err := helperWorker(value); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// guardedWorker returns how a child ends that existed before the first launcher.
func guardedWorker() error {
	guard := exec.Command("cat")
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	link, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	ctx := context.Background()
	l, err := runner.StartLauncher(ctx, runner.LauncherOptions{})
	if err != nil {
		return err
	}
	c := runner.Command{Args: []string{"/bin/sh", "-c", "kill -9 $PPID; sleep 1000"}, Env: []string{os.Getenv("MARK")}, Dir: os.TempDir()}
	if _, err := l.Run(ctx, c); !errors.Is(err, runner.ErrLauncherDied) {
		return fmt.Errorf("the launcher has not died: %w", err)
	}
	return errors.Join(l.Close(ctx), link.Close(), guard.Wait())
}

func helperWorker(value string) error {
	version, err := strconv.Atoi(value)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var o runner.LauncherOptions
	if version >= 0 {
		p, err := cgroup.Open(cgroup.Options{Name: os.Getenv("GROUP"), Version: version})
		if err != nil {
			return err
		}
		if o.Cgroup, err = p.Slot("0"); err != nil {
			return err
		}
	}
	if version == inSandbox {
		o.Sandbox = &sandbox.Options{}
	}
	l, err := runner.StartLauncher(ctx, o)
	if err != nil {
		return err
	}
	dir := os.Getenv("ROOT")
	_, err = l.Run(ctx, runner.Command{Args: os.Args[1:], Env: []string{os.Getenv("MARK")}, Dir: dir, Folders: sandbox.Folders{Root: dir, TempDir: dir}})
	return err
}
