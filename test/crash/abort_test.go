package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/test/programs"
)

// abortedWithin is how long a program may take to end after the second signal where a machine is
// busy; it is meant to be two seconds.
const abortedWithin = 15 * time.Second

var drainsLine = regexp.MustCompile("finishing what runs")

// TestAbort ends programs by two signals, whatever they wait for, and starts them again with the
// same data.
func TestAbort(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	for _, state := range []struct {
		name  string
		bring func(*abortedWorker)
	}{
		{"hashing", (*abortedWorker).hash},
		{"fetching", (*abortedWorker).fetch},
		{"uploading", (*abortedWorker).upload},
		{"removing", (*abortedWorker).remove},
		{"unkillable child", (*abortedWorker).freeze},
	} {
		f.Run("worker "+state.name, func(t *testing.T) { abortWorker(part(f, t, state.name), state.bring) })
	}
	f.Run("scheduler", func(t *testing.T) { abortScheduler(part(f, t, "scheduler")) })
	f.Run("up", func(t *testing.T) { abortUp(part(f, t, "up")) })
}

// part returns f for a part of its test, with a folder of its own.
func part(f *programs.Test, t *testing.T, name string) *programs.Test {
	t.Helper()
	own := *f
	own.T, own.Dir = t, filepath.Join(f.Dir, strings.ReplaceAll(name, " ", "-"))
	if err := os.Mkdir(own.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &own
}

// abort sends two signals and waits for the end of the process. A child that the kernel holds may
// still have its standard error.
func abort(t *testing.T, p *programs.Process) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	p.WaitFor(&p.Stderr, drainsLine)
	p.Signal(syscall.SIGTERM)
	begin := time.Now()
	for syscall.Kill(p.Pid(), 0) == nil {
		if time.Since(begin) > abortedWithin {
			t.Errorf("%d is still there %v after the second signal", p.Pid(), abortedWithin)
			p.Kill()
		}
		time.Sleep(programs.PollInterval)
	}
	t.Logf("ended %v after the second signal", time.Since(begin).Round(time.Millisecond))
}

// An abortedWorker is to be ended by two signals, in a state that it is brought into.
type abortedWorker struct {
	*programs.Test
	data     string
	listen   string // the scheduler's address
	storage  *relay
	worker   *programs.Process
	client   *programs.Process // runs an action
	leaves   func()            // when the worker has ended
	launched programs.Trace
}

// abortWorker ends a worker in a state. A worker that is started with the same data must then take an action.
func abortWorker(f *programs.Test, bring func(*abortedWorker)) {
	scheduler, address := f.Scheduler("--data", filepath.Join(f.Dir, "scheduler"))
	v := &abortedWorker{
		Test: f, data: filepath.Join(f.Dir, "worker"), listen: address,
		storage: startRelay(f, address), leaves: func() {},
	}
	bring(v)
	v.launched = programs.TraceOf(f.T, v.worker)
	abort(f.T, v.worker)
	v.leaves()
	v.worker.Wait()
	f.ExpectNoLaunchers(v.launched)
	if v.client != nil {
		v.client.Kill()
	}
	scheduler.Kill() // it would give the action to the next worker

	scheduler, address = f.Scheduler("--data", filepath.Join(f.Dir, "scheduler2"))
	next := f.Worker("worker", address, address)
	f.Exec(address, "--", "/bin/echo", "works").Expect(0, "works\n")
	f.ExpectNoRoots(v.data)
	now := programs.TraceOf(f.T, next)
	next.Drain()
	programs.ExpectNoMounts(f.T, v.data)
	f.ExpectNoLaunchers(now)
	f.ExpectNoGroups(v.launched)
	f.ExpectNoGroups(now)
	if left := programs.FilesBelow(f.T, filepath.Join(v.data, "upper")); len(left) > 0 {
		f.Errorf("%d files left behind, such as %s", len(left), left[0])
	}
	scheduler.Drain()
}

// start starts the worker.
func (v *abortedWorker) start(args ...string) {
	v.Helper()
	v.worker = v.Worker("worker", v.listen, v.storage.address, args...)
}

// run starts an action, which tells that it has begun and then does what script says.
func (v *abortedWorker) run(script string) {
	v.Helper()
	v.client = v.Exec(v.listen, "--output", "out", "--", "/bin/sh", "-c", "touch "+v.path("begun")+"; "+script)
}

func (v *abortedWorker) path(name string) string { return filepath.Join(v.Dir, name) }

// hash has it hash an output of zeros that takes minutes.
func (v *abortedWorker) hash() {
	v.start("--cache-size", "2T")
	v.run("truncate -s 500G out")
	v.WaitForFile(v.path("begun"))
	v.Eventually("it reads the output", func() bool { return bytesRead(v.worker) > 1<<30 })
}

// bytesRead returns the number of bytes that a process has read so far.
func bytesRead(p *programs.Process) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.Pid()))
	line, _, _ := strings.Cut(string(text), "\n")
	n, _ := strconv.ParseInt(strings.TrimPrefix(line, "rchar: "), 10, 64)
	return n
}

// fetch makes it wait for a storage that has become silent.
func (v *abortedWorker) fetch() {
	v.start()
	v.storage.hangs.Store(true)
	v.run("true")
	<-v.storage.held
}

// upload makes it wait for a storage that becomes silent while its command runs.
func (v *abortedWorker) upload() {
	v.start()
	v.run(fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; head -c 5000000 /dev/urandom >out", v.path("go-on")))
	v.WaitForFile(v.path("begun"))
	v.storage.hangs.Store(true)
	v.Write("go-on", "")
	<-v.storage.held
}

// remove has it remove what a worker that was killed left: a hundred folders of 2,000 files each.
func (v *abortedWorker) remove() {
	trash := filepath.Join(v.data, "upper", ".trash", "1")
	v.Write("file", "")
	for i := range 100 {
		dir := filepath.Join(trash, strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			v.Fatal(err)
		}
		for j := range 2000 {
			if err := os.Link(v.path("file"), filepath.Join(dir, strconv.Itoa(j))); err != nil {
				v.Fatal(err)
			}
		}
		if err := os.Remove(v.path("file")); err != nil {
			v.Fatal(err)
		}
		v.Write("file", "") // a file can have 65,000 names
	}
	v.start()
	v.leaves = func() {
		if len(programs.FilesBelow(v.T, trash)) == 0 {
			v.Log("all was removed before the signals: this tests nothing")
		}
	}
}

// freeze makes it wait for a command's child that the kernel does not end.
func (v *abortedWorker) freeze() {
	freeze, thaw := freezer(v.Test)
	v.start()
	hang := fmt.Sprintf("6161.%d", os.Getpid())
	v.run("sleep " + hang + " & wait")
	v.WaitForFile(v.path("begun"))
	var pid string
	v.Eventually("the child is there", func() bool {
		pid = pidOf("sleep", hang)
		return pid != ""
	})
	freeze(pid)
	v.leaves = thaw
}

// pidOf finds a process by its arguments; empty: there is none.
func pidOf(args ...string) string {
	want := strings.Join(args, "\x00") + "\x00"
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if got, err := os.ReadFile(line); err == nil && string(got) == want {
			return strings.Split(line, "/")[2]
		}
	}
	return ""
}

// freezer makes a group of cgroup v1 outside of the worker's groups: processes in it react to no
// signal.
func freezer(f *programs.Test) (freeze func(pid string), thaw func()) {
	f.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/freezer/forerunner-test-%d-abort", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.Skip("needs the freezer of cgroup v1: ", err)
	}
	write := func(file, text string) {
		f.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			f.Error(err)
		}
	}
	thaw = func() { write("freezer.state", "THAWED") }
	f.Cleanup(func() {
		thaw()
		f.Eventually("the test's group is empty", func() bool { return os.Remove(dir) == nil })
	})
	return func(pid string) { write("cgroup.procs", pid); write("freezer.state", "FROZEN") }, thaw
}

// abortScheduler ends a scheduler during an upload, with an action that no worker takes.
func abortScheduler(f *programs.Test) {
	data := filepath.Join(f.Dir, "data")
	scheduler, address := f.Scheduler("--data", data)
	client := f.Exec(address, "--", "/bin/echo", "works")
	client.WaitFor(&client.Stderr, regexp.MustCompile("uploading"))
	uploadHalf(f, address, digest.Of(digest.SHA256, []byte("half")), "half")
	f.Eventually("half a blob is there", func() bool {
		return len(programs.FilesBelow(f.T, filepath.Join(data, "storage/cas/tmp"))) > 0
	})
	abort(f.T, scheduler)
	client.Kill()
	scheduler, address = f.Scheduler("--data", data)
	worker := f.Worker("worker", address, address)
	f.Exec(address, "--", "/bin/echo", "works").Expect(0, "works\n")
	worker.Drain()
	scheduler.Drain()
}

// abortUp ends a farm whose action does not listen to signals.
func abortUp(f *programs.Test) {
	data := filepath.Join(f.Dir, "data")
	farm, address := f.Up(data)
	was := programs.TraceOf(f.T, farm)
	begun, hang := filepath.Join(f.Dir, "begun"), fmt.Sprintf("7171.%d", os.Getpid())
	client := f.Exec(address, "--", "/bin/sh", "-c", fmt.Sprintf("trap '' TERM INT; touch %s; sleep %s", begun, hang))
	f.WaitForFile(begun)
	abort(f.T, farm)
	client.Kill()
	f.ExpectNoLaunchers(was)
	programs.ExpectNoProcess(f.T, "sleep", hang)
	farm, address = f.Up(data)
	f.Exec(address, "--", "/bin/echo", "works").Expect(0, "works\n")
	farm.Drain()
	programs.ExpectNoMounts(f.T, data)
	f.ExpectNoGroups(was)
}
