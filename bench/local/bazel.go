package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/forerunner-build/forerunner/bench/program"
)

// A bazel builds one workspace, with a separate server and output root.
type bazel struct {
	program, workspace string
	startup            []string
	server             int // its PID
}

// newBazel starts the server.
func newBazel(ctx context.Context, program, dir string, packages int) (*bazel, error) {
	b := &bazel{program: program, workspace: filepath.Join(dir, "workspace")}
	temporary := filepath.Join(dir, "bazel-tmp")
	b.startup = []string{
		"--nohome_rc", "--noworkspace_rc", "--max_idle_secs=600",
		"--output_user_root=" + filepath.Join(dir, "bazel"), "--host_jvm_args=-Djava.io.tmpdir=" + temporary,
	}
	if err := errors.Join(os.Mkdir(temporary, 0o755), writeWorkspace(b.workspace, packages)); err != nil {
		return nil, err
	}
	said, err := b.command(ctx, "info", "server_pid")
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(said)
	if b.server, err = strconv.Atoi(lines[len(lines)-1]); err != nil {
		return nil, fmt.Errorf("bazel info server_pid: %q", said)
	}
	return b, nil
}

// command runs bazel and returns its output.
func (b *bazel) command(ctx context.Context, args ...string) (string, error) {
	out, _, err := b.timed(ctx, args...)
	return out, err
}

// timed runs bazel and returns its output and the CPU time of the client.
func (b *bazel) timed(ctx context.Context, args ...string) (out string, cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, b.program, append(append([]string(nil), b.startup...), args...)...)
	cmd.Dir = b.workspace
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", 0, fmt.Errorf("bazel %s: %w: %s", args[0], err, program.Tail(text))
	}
	return string(text), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

var processesLine = regexp.MustCompile(`(?m)^INFO: \d+ processes?: (.*)\.$`)

// build builds and tests everything from scratch with a strategy. It returns an error unless Bazel
// ran that many actions.
func (b *bazel) build(ctx context.Context, strategy string, actions int, flags ...string) (took, client time.Duration, err error) {
	args := append([]string{
		"test", "--noshow_progress", "--color=no", "--curses=no", "--incompatible_strict_action_env", "--nobuild_runfile_links",
		"--spawn_strategy=" + strategy, "--genrule_strategy=" + strategy, "--strategy=TestRunner=" + strategy, "--test_output=errors",
		"--nosandbox_debug", // Debian enables it by default
	}, append(flags, "//actions/...")...)
	began := time.Now()
	said, client, err := b.timed(ctx, args...)
	took = time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	m := processesLine.FindStringSubmatch(said)
	if m == nil {
		return 0, 0, fmt.Errorf("bazel does not say how many actions it ran: %s", program.Tail([]byte(said)))
	}
	for part := range strings.SplitSeq(m[1], ", ") {
		n, by, _ := strings.Cut(part, " ")
		if by == strategy && n == strconv.Itoa(actions) {
			return took, client, nil
		}
	}
	return 0, 0, fmt.Errorf("bazel ran %q, want %d %s", m[1], actions, strategy)
}

// clean makes the next build start from scratch.
func (b *bazel) clean(ctx context.Context) error {
	_, err := b.command(ctx, "clean")
	return err
}

// close ends the server and makes its read-only files removable.
func (b *bazel) close(ctx context.Context) error {
	_, err := b.command(context.WithoutCancel(ctx), "shutdown")
	return err
}
