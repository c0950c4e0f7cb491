package docs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/test/programs"
	"github.com/forerunner-build/forerunner/web"
)

const (
	patience = 2 * time.Minute // with whatever has to happen
	pause    = 20 * time.Millisecond
)

// prelude comes before each block.
const prelude = "set -euo pipefail\n"

// A stage is the environment of commands: the programs, a folder, and a farm that listens at its
// usual addresses.
type stage struct {
	*testing.T
	whole  *testing.T
	dir    string   // folder of all others, which commands on workers see
	env    []string // of all that is started
	farm   network
	action string // one that was run
}

// TestDocumentation compares all pages with the programs.
func TestDocumentation(t *testing.T) {
	built := programs.Build(t)
	t.Run("pages", testPages)
	t.Run("references", testReferences)
	t.Run("help", func(t *testing.T) { testHelp(t, built) })
	t.Run("commands", func(t *testing.T) { testCommands(t, built) })
}

// testCommands runs each block of each page. A page has a folder of its own, with the programs in
// bin, the files of the repository that are for users, and some that the examples assume. If a
// block starts servers, it has a network of its own; otherwise it shares one with a farm.
func testCommands(t *testing.T, programs string) {
	all := allBlocks(t)
	need(t, os.Getuid() == 0, "a farm needs root")
	_, err := os.Stat("/dev/fuse")
	need(t, err == nil, "a worker needs FUSE: %v", err)
	for _, program := range []string{"bash", "curl", "gcc", "openssl", "redis-server"} {
		_, err := exec.LookPath(program)
		need(t, err == nil, "%v", err)
	}
	s := newStage(t, programs)
	s.startFarm()
	folders, ran := map[string]string{}, 0
	for _, b := range all {
		if b.script() == "" || b.notRun != "" {
			continue
		}
		if folders[b.page] == "" {
			folders[b.page] = s.folder(b.page)
		}
		t.Run(b.String(), func(t *testing.T) {
			on := *s
			on.T = t
			on.run(b, folders[b.page])
		})
		ran++
	}
	t.Logf("%d blocks were run", ran)
}

// need skips the test, or fails it where nothing may be skipped.
func need(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf(format, args...)
	default:
		t.Skipf(format, args...)
	}
}

func newStage(t *testing.T, programs string) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-docs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &stage{T: t, whole: t, dir: dir, farm: newNetwork(t)}
	authority := certtest.New(t)
	authority.Issue("farm", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}})
	s.env = append(os.Environ(), "PROGRAMS="+programs, "SSL_CERT_FILE="+authority.File,
		"CERTIFICATES="+filepath.Dir(authority.File), "FORERUNNER_SETTLE=0s", "FORERUNNER_CACHE_SIZE=1G")
	return s
}

// quickStart is the page for users who have only the programs.
const quickStart = "QUICKSTART.md"

// folder makes the folder of a page.
func (s *stage) folder(page string) string {
	s.Helper()
	dir := filepath.Join(s.dir, page)
	s.must(os.Mkdir(dir, 0o755))
	s.script(dir, s.farm, `
mkdir bin home
for program in forerunner forerunner-scheduler forerunner-worker; do
	install -m 755 "$HERE/testdata/program.sh" bin/$program
done
`)
	if page == quickStart {
		return dir
	}
	s.script(dir, s.farm, `
mkdir src
cp -r "$HERE/../deploy" .
cp "$CERTIFICATES"/farm.pem "$CERTIFICATES"/farm.key .
cp "$HERE/testdata/hello.c" src
`)
	return dir
}

// startFarm starts the farm for most blocks, and runs an action on it.
func (s *stage) startFarm() {
	s.Helper()
	servers := filepath.Join(s.dir, "farm")
	s.must(os.Mkdir(servers, 0o755))
	dir := s.folder("first")
	s.Cleanup(func() {
		s.script(dir, s.farm, "bin/forerunner queue kill 'operation=*'") // or the worker waits for it
		stopServers(s.T, servers)
	})
	s.script(dir, s.farm, `
export SERVERS="`+servers+`"
bin/forerunner-scheduler --config "$HERE/testdata/farm.yaml"
FORERUNNER_CGROUP=off bin/forerunner-worker --slots 2 --state grpc://127.0.0.1:8980
bin/forerunner exec --input src --output hello -- gcc -o hello hello.c
`)
	logs, err := filepath.Glob(filepath.Join(servers, "forerunner-scheduler-*", "log"))
	if err != nil || len(logs) != 1 {
		s.Fatalf("logs %q, %v", logs, err)
	}
	action := regexp.MustCompile(`"action":"([0-9a-f]{64}/\d+)"`)
	s.eventually("a profile is known", func() bool {
		log, err := os.ReadFile(logs[0])
		s.must(err)
		m := action.FindSubmatch(log)
		if m == nil {
			return false
		}
		s.action = string(m[1])
		_, err = s.output(dir, s.farm, "bin/forerunner profile "+s.action)
		return err == nil
	})
}

// servers finds what a block starts.
var servers = regexp.MustCompile(`(?m)^(bin/)?forerunner(-scheduler|-worker)? (up\b|--)`)

// run runs a block in the folder of its page.
func (s *stage) run(b block, dir string) {
	s.Helper()
	script := b.script()
	if strings.Contains(script, "$OPERATION") && b.page != quickStart {
		script = "OPERATION=" + s.operation(dir) + "\n" + script
	}
	if !servers.MatchString(script) {
		s.script(dir, s.farm, script)
		return
	}
	alone, folder := newNetwork(s.T), filepath.Join(dir, "servers-"+strconv.Itoa(b.line))
	s.must(os.Mkdir(folder, 0o755))
	s.Cleanup(func() { stopServers(s.T, folder) })
	if strings.Contains(script, "10.0.0.9") {
		s.redis(alone, folder)
		script = "forerunner-scheduler --listen 10.0.0.9:8980 --insecure-listen --http=\n" + script
	}
	s.script(dir, alone, "export SERVERS="+folder+" FORERUNNER_INSECURE_LISTEN=true\n"+script)
	if b.page == quickStart && strings.Contains(script, "forerunner up ") {
		s.sameLines(dir, folder, alone)
	}
}

// sameLines compares the lines for .bazelrc that a new farm prints, and those of its first page,
// with those on the pages, which web.TestBazelrc compares with the same function.
func (s *stage) sameLines(dir, servers string, alone network) {
	s.Helper()
	want := web.Bazelrc("grpc://127.0.0.1:8980", "http://127.0.0.1:8981/", runtime.NumCPU())
	logs, err := filepath.Glob(filepath.Join(servers, "forerunner-*", "log"))
	if err != nil || len(logs) != 1 {
		s.Fatalf("logs %q, %v", logs, err)
	}
	printed, err := os.ReadFile(logs[0])
	s.must(err)
	page, err := s.output(dir, alone, "curl -sS http://127.0.0.1:8981/")
	s.must(err)
	for what, text := range map[string]string{"the program": string(printed), "the page": page} {
		if !strings.Contains(text, want) {
			s.Errorf("%s has not the lines\n%sbut\n%s", what, want, text)
		}
	}
}

// redis starts a Redis.
func (s *stage) redis(n network, dir string) {
	s.Helper()
	cmd := exec.Command("redis-server", "--bind", "10.0.0.9", "--protected-mode", "no", "--save", "", "--dir", dir)
	s.must(n.start(cmd))
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// operation returns the name of an operation that executes.
func (s *stage) operation(dir string) (name string) {
	s.Helper()
	executes := func() bool {
		list, err := s.output(dir, s.farm, "bin/forerunner queue operations stage=executing")
		s.must(err)
		name = regexp.MustCompile(`operations/\S+|$`).FindString(list)
		return name != ""
	}
	if executes() {
		return name
	}
	cmd := s.command(dir, "exec bin/forerunner exec --quiet --no-cache -- sleep 600")
	s.must(s.farm.start(cmd))
	s.whole.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
	s.eventually("an operation executes", executes)
	return name
}

// command returns a shell that is not started.
func (s *stage) command(dir, script string) *exec.Cmd {
	s.Helper()
	here, err := os.Getwd()
	s.must(err)
	cmd := exec.Command("bash", "-c", prelude+script)
	cmd.Dir = dir
	cmd.Env = append(s.env, "HERE="+here, "ACTION="+s.action, "HOME="+filepath.Join(dir, "home"),
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	return cmd
}

// output runs a script and returns what it printed.
func (s *stage) output(dir string, n network, script string) (string, error) {
	s.Helper()
	cmd := s.command(dir, script)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.WaitDelay = patience
	if err := n.start(cmd); err != nil {
		return "", err
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	return printed.String(), err
}

// script runs a script, which has to succeed.
func (s *stage) script(dir string, n network, script string) {
	s.Helper()
	if out, err := s.output(dir, n, script); err != nil {
		s.Errorf("%v of\n%s\nwhich printed\n%s", err, script, out)
	}
}

// stopServers ends what program.sh has started with this folder in $SERVERS.
func stopServers(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	for i := len(files) - 1; i >= 0; i-- {
		text, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := stop(pid); err != nil {
			log, _ := os.ReadFile(filepath.Join(filepath.Dir(files[i]), "log"))
			t.Errorf("stop %s: %v\n%s", files[i], err, log)
		}
	}
}

// stop ends a process that was handed to this one.
func stop(pid int) error {
	late := time.AfterFunc(patience, func() { _ = unix.Kill(pid, unix.SIGKILL) })
	defer late.Stop()
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case status.ExitStatus() != 0:
			return fmt.Errorf("exit status %d, signal %v", status.ExitStatus(), status.Signal())
		default:
			return nil
		}
	}
}

// TestMain has the servers that commands leave behind handed to this process.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually polls until what holds.
func (s *stage) eventually(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(pause) {
		if time.Now().After(end) {
			s.Fatalf("not in %v: %s", patience, what)
		}
	}
}
