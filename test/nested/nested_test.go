package nested

import (
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

// nestedRule is a Bazel action that reports its environment: the second process of a namespace, on
// a machine that is read-only except for its own folder, and without a network.
const nestedRule = `genrule(name = "nested", outs = ["said"], cmd = "` +
	`(echo $$$$; touch /usr/x /forerunner/x 2>/dev/null || echo read-only; tail -n +3 /proc/net/dev | wc -l) >$@")
`

// TestNestedSandboxes runs what people have in actions that makes sandboxes itself, with default
// flags.
func TestNestedSandboxes(t *testing.T) {
	program := bazel.Debian(t)
	f := programs.New(t, programs.OwnSandbox)
	farm, address := f.Up(filepath.Join(f.Dir, "data"))
	f.Write("in/WORKSPACE", "")
	f.Write("in/BUILD", nestedRule)

	f.Exec(address, "--", "unshare", "-r", "-m", "-p", "-f", "--mount-proc", "/bin/sh", "-c",
		"mount -t tmpfs none /tmp && touch /tmp/x && ls /tmp && echo $$ && id -u && unshare -n true 2>/dev/null || echo no network").
		Expect(0, "x\n1\n0\nno network\n")
	f.Exec(address, "--input", "in", "--timeout", "5m", "--", "/bin/sh", "-c",
		"cp -r . /tmp/ws && cd /tmp/ws && "+program+" --output_user_root=/tmp/bazel --batch build "+
			"--spawn_strategy=linux-sandbox --genrule_strategy=linux-sandbox --noshow_progress //:nested >&2 && cat bazel-bin/said").
		Expect(0, "2\nread-only\n1\n", "1 linux-sandbox")
	farm.Drain()
}
