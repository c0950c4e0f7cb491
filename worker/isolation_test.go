package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/policy"
)

func newSandboxedFarm(t *testing.T, method vfs.Method, adjust func(*Options)) *farm {
	t.Helper()
	return newFarmWith(t, vfs.Options{Method: method}, nil, farmOptions{sandbox: &sandbox.Options{}, change: adjust})
}

// The command is at the same place in every run, and what it writes, to inputs too,
// is an output or nothing.
func TestSandboxedAction(t *testing.T) {
	for _, method := range []vfs.Method{vfs.FUSE, vfs.HardLink} {
		t.Run(string(method), func(t *testing.T) {
			f := newSandboxedFarm(t, method, nil)
			for range 2 {
				r := f.run(t, spec{
					inputs: tree{"dir/in": "input", "dir/sub/": nil}, dir: "dir",
					shell: "pwd; cat /forerunner/dir/in; ls -A /tmp; echo >/tmp/left; echo changed >in; echo made >sub/out",
					paths: []string{"in", "sub/out"},
				})
				assertOK(t, r)
				if got := string(r.GetResult().GetStdoutRaw()); got != "/forerunner/dir\ninput" {
					t.Errorf("said %q", got)
				}
				if o := r.GetResult().GetOutputFiles(); len(o) != 2 || f.read(t, o[0].GetDigest()) != "changed\n" || f.read(t, o[1].GetDigest()) != "made\n" {
					t.Errorf("outputs %v", o)
				}
			}
			blob, err := os.ReadFile(filepath.Join(f.local.Dir(), disk.BlobPath(digestOfBytes("input"))))
			if err != nil || string(blob) != "input" {
				t.Errorf("the local store has %q, %v", blob, err)
			}
		})
	}
}

// TestOutputsThatOthersHaveOpen: an output that somebody has open becomes a blob by copy, which he
// cannot rewrite. Any other is moved where nothing of a command can be at work after its end.
func TestOutputsThatOthersHaveOpen(t *testing.T) {
	for name, c := range map[string]struct {
		sandbox   *sandbox.Options
		noNetwork bool
	}{"no sandbox": {}, "sandbox": {sandbox: &sandbox.Options{}}, "no network": {&sandbox.Options{}, true}} {
		for _, held := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/held %v", name, held), func(t *testing.T) {
				apart := c.noNetwork
				f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{sandbox: c.sandbox, change: func(o *Options) {
					o.Isolation.Sandbox.NoNetwork = c.noNetwork
					apart = apart || o.Launchers[0].NotApart() == nil
				}})
				if apart && c.sandbox == nil {
					t.Fatal("commands without a sandbox are said to be apart")
				}
				testOutputsOpen(t, f, apart && !held, held)
			})
		}
	}
}

func testOutputsOpen(t *testing.T, f *farm, moved, held bool) {
	last := digestOfBytes("last")
	release := f.reads.hold(last.Hash())
	defer release()
	j := f.start(t, spec{
		inputs: tree{"last": "last"}, paths: []string{"file", "dir"},
		shell: `echo one >file; mkdir dir; echo two >dir/file; head -c 5000 /dev/zero; head -c 5001 /dev/zero >&2
			cat last >/dev/null`,
	})
	for deadline := time.Now().Add(patience); f.reads.count(last) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command does not read its input")
		}
	}
	outputs := []struct{ name, content string }{
		{"upper/*/upper/file", "one\n"},
		{"upper/*/upper/dir/file", "two\n"},
		{"work/*/stdout", strings.Repeat("\x00", 5000)},
		{"work/*/stderr", strings.Repeat("\x00", 5001)},
	}
	var files []*os.File // as another command would have them
	var were []os.FileInfo
	for _, o := range outputs {
		file := openOnly(t, filepath.Join(filepath.Dir(f.local.Dir()), o.name))
		was, err := file.Stat()
		check(t, err)
		if !held {
			check(t, file.Close())
		}
		files, were = append(files, file), append(were, was)
	}
	release()
	assertOK(t, j.result(t))
	for i, o := range outputs {
		blob := filepath.Join(f.local.Dir(), disk.BlobPath(digestOfBytes(o.content)))
		is, err := os.Lstat(blob)
		check(t, err)
		if os.SameFile(were[i], is) != moved {
			t.Errorf("%s was moved: %v, want %v", o.name, !moved, moved)
		}
		if !held {
			continue
		}
		_, err = files[i].WriteAt([]byte("LIE"), 0)
		check(t, errors.Join(err, files[i].Close()))
		if b, err := os.ReadFile(blob); err != nil || string(b) != o.content {
			t.Errorf("%s was rewritten to %.10q, %v", o.name, b, err)
		}
	}
}

// openOnly opens the one file that matches pattern.
func openOnly(t *testing.T, pattern string) *os.File {
	t.Helper()
	names, err := filepath.Glob(pattern)
	check(t, err)
	if len(names) != 1 {
		t.Fatalf("files of %s: %q", pattern, names)
	}
	file, err := os.OpenFile(names[0], os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// A user without rights on this machine can do with its root what root can.
func TestActionOfAUser(t *testing.T) {
	user, err := policy.LookUpUsers("12345:12346")
	check(t, err)
	for _, method := range []vfs.Method{vfs.FUSE, vfs.HardLink} {
		t.Run(string(method), func(t *testing.T) {
			f := newSandboxedFarm(t, method, func(o *Options) { o.Isolation.Users = user })
			r := f.run(t, spec{
				inputs: tree{"dir/in": "input", "gone": "gone"}, dir: "dir",
				shell: "id -u; id -g; rm ../gone in; echo new >in; echo made >sub/out; mkdir other; touch /tmp/x; cat /etc/shadow 2>/dev/null",
				paths: []string{"in", "sub/out"},
			})
			if got := string(r.GetResult().GetStdoutRaw()); got != "12345\n12346\n" {
				t.Errorf("said %q, %s", got, r.GetResult().GetStderrRaw())
			}
			if o := r.GetResult().GetOutputFiles(); len(o) != 2 || f.read(t, o[0].GetDigest()) != "new\n" || f.read(t, o[1].GetDigest()) != "made\n" {
				t.Errorf("outputs %v, %v", o, r.GetStatus())
			}
		})
	}
}

func TestWrappedAction(t *testing.T) {
	policies, err := policy.Parse([]byte(`
policies:
  - name: coloured
    match: {color: "*"}
    wrappers:
      - [env, 'WRAPPED={{.Property "color"}}']
      - [nice, -n, '{{.PropertyOr "niceness" "3"}}']
    environment: {ADDED: yes, PATH: /usr/bin:/bin:/added}
    nice: 2
    network: off
    user: 12345:12346
`))
	check(t, err)
	f := newSandboxedFarm(t, vfs.FUSE, func(o *Options) { o.Isolation.Policies = policies })
	script := "echo $WRAPPED $ADDED $PATH $(nice) $(id -u) $(tail -n +3 /proc/net/dev | wc -l); echo made >out"
	before := f.run(t, spec{shell: "nice"}).GetResult().GetStdoutRaw()
	r := f.run(t, spec{shell: script, paths: []string{"out"}, platform: map[string]string{"color": "red; $x", "network": "on"}})
	assertOK(t, r)
	want := map[string]string{"0": "5", "5": "10", "10": "15", "19": "19"}[strings.TrimSpace(string(before))]
	if got := string(r.GetResult().GetStdoutRaw()); got != "red; $x yes /usr/bin:/bin:/added "+want+" 12345 1\n" {
		t.Errorf("said %q after niceness %s", got, before)
	}
	if len(r.GetResult().GetOutputFiles()) != 1 {
		t.Errorf("outputs %v", r.GetResult())
	}
}

// TestNetworkHint: a command that fails and seems to miss the network is told why it had none.
func TestNetworkHint(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{sandbox: &sandbox.Options{}, change: func(o *Options) {
		o.Isolation.Sandbox.NoNetwork = true
	}})
	for shell, want := range map[string]string{
		"exit 3": "", "echo no such file >&2; exit 1": "", "echo Could not resolve host: x": "",
		"echo curl: '(6)' Could not resolve host: x >&2; exit 6":                  policy.NoNetworkHint,
		"head -c 100000 /dev/zero >&2; echo Network is unreachable >&2; exit 101": policy.NoNetworkHint,
	} {
		if got := f.start(t, spec{shell: shell}).result(t); got.GetMessage() != want || got.GetStatus() != nil {
			t.Errorf("%s: %v, want the message %q", shell, got, want)
		}
	}
}
