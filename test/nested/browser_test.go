//go:build pages

package nested

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// browsers is the policy of docs/EXECUTION.md#sandbox.
const browsers = `policies:
  - name: browsers
    match: {browser: chromium}
    wrappers: [[unshare, --map-user=1000, --map-group=1000]]
    allow: [netlink, network_namespaces]
`

// TestNestedBrowser has Chromium open a page in an action, with its own sandbox: each of its
// renderers is in a user namespace and under filters of its own.
func TestNestedBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		programs.Needs(t, "chromium is missing: apt-get install chromium")
	}
	f := programs.New(t, programs.OwnSandbox)
	f.Write("policies.yaml", browsers)
	farm, address := f.With("FORERUNNER_ACTION_PROPERTIES=browser").Up(filepath.Join(f.Dir, "data"), "--policies", filepath.Join(f.Dir, "policies.yaml"))
	f.Write("in/page.html", "<body><script>document.body.textContent = 'answer ' + 6 * 7</script></body>")
	f.Write("in/run", `set -e
export HOME=/tmp/home
mkdir /tmp/home
browser="`+chromium+` --headless --disable-gpu --user-data-dir=/tmp/profile file:///forerunner/page.html"
$browser --dump-dom | grep -o 'answer 42'
$browser --remote-debugging-port=9222 &
until renderer=$(grep -l -a "type=[r]enderer" /proc/[0-9]*/cmdline | head -n 1 | cut -d/ -f3) && [ "$renderer" ]; do sleep 0.1; done
test "$(readlink /proc/$renderer/ns/user)" != "$(readlink /proc/self/ns/user)" && echo in a namespace
test $(grep Seccomp_filters /proc/$renderer/status | cut -f2) -gt $(grep Seccomp_filters /proc/self/status | cut -f2) && echo filtered
`)
	f.Exec(address, "--platform", "browser=chromium", "--input", "in", "--timeout", "5m", "--", "/bin/sh", "run").
		Expect(0, "answer 42\nin a namespace\nfiltered\n")
	farm.Drain()
}
