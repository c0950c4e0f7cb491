package flood

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/test/programs"
)

const floodedMemory = 200_000_000

// A flood is one way to make a server hold data that it will never need.
type flood struct {
	name string
	// clients is the number of concurrent clients. Each starts again when press returns.
	clients int
	press   func(c *rudeClient)
	from    string // the clients' address; empty: any address other than those of honest clients
	raw     bool   // nothing is spoken before press, not even TLS
	pages   bool   // it is for the port of HTTP
}

const (
	methodBatch   = "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs"
	methodMissing = "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs"
	methodWrite   = "/google.bytestream.ByteStream/Write"
	methodExecute = "/build.bazel.remote.execution.v2.Execution/Execute"
	methodHealth  = "/grpc.health.v1.Health/Check"
)

func floods() []flood {
	short := append(message(15<<20), make([]byte, 15<<20-1)...)
	long := append(message(0), make([]byte, 4<<20)...)
	return append(answerFloods(), []flood{
		{name: "one byte short", clients: 1, press: func(c *rudeClient) {
			inParallel(60, func() { c.pressCall(methodBatch, short) })
		}},
		{name: "hung writers", clients: 30, press: func(c *rudeClient) {
			inParallel(100, func() { c.pressCall(methodWrite, firstOfWrite(100_000, 60_000)) })
		}},
		{name: "one byte short of a health check", clients: 1, press: func(c *rudeClient) {
			inParallel(60, func() { c.pressCall(methodHealth, short) })
		}},
		{name: "more than is asked for", clients: 30, press: func(c *rudeClient) {
			inParallel(100, func() { c.pressCall(methodExecute, long) })
		}},
		{name: "small requests in frames of a byte", clients: 8, press: func(c *rudeClient) {
			c.drip(methodMissing, 190, 16_300, 16_299)
		}},
		{name: "large requests in frames of a byte", clients: 8, press: func(c *rudeClient) {
			c.drip(methodBatch, 190, 4_000_000, 60_000)
		}},
		{name: "idle connections", clients: 2000, press: (*rudeClient).wait},
		{name: "endless headers", clients: 400, press: func(c *rudeClient) {
			if c.endlessHeaders(methodHealth, 2<<20-64<<10) == nil {
				c.wait()
			}
		}},
	}...)
}

// pressCall sends all of a call but its end, and waits for the server to lose patience.
func (c *rudeClient) pressCall(method string, data []byte) {
	stream, err := c.call(method)
	if err != nil || c.send(stream, data) != nil {
		return
	}
	_, _ = c.awaitWindow(stream, 0) // never any: until the stream has ended
}

// firstOfWrite is the first message of an upload, with a part of its bytes.
func firstOfWrite(size, part int) []byte {
	var hash [32]byte
	_, _ = rand.Read(hash[:])
	request, err := proto.Marshal(&bytestream.WriteRequest{
		ResourceName: fmt.Sprintf("uploads/%x-%x-%x-%x-%x/blobs/%x/%d", hash[:4], hash[4:6], hash[6:8], hash[8:10], hash[10:16], hash, size),
		Data:         make([]byte, part),
	})
	if err != nil {
		panic(err)
	}
	return append(message(len(request)), request...)
}

func inParallel(n int, do func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(do)
	}
	all.Wait()
}

// floodLasts is how long a flood lasts at least where all are wanted.
const floodLasts = 8 * time.Second

// chosen returns those floods that are wanted, and how long they last: the first few for a moment,
// all, or those that have a text in their name.
func chosen(all []flood, few int) (lasts time.Duration, wanted []flood) {
	switch text := os.Getenv("FORERUNNER_TEST_FLOOD"); text {
	case "":
		return time.Second, all[:few]
	case "all":
		return floodLasts, all
	default:
		return floodLasts, slices.DeleteFunc(all, func(f flood) bool { return !strings.Contains(f.name, text) })
	}
}

// TestFlood has a scheduler with 200 MB of memory, which callers with and without identity flood
// while a client at another address runs actions. All actions must succeed.
func TestFlood(t *testing.T) {
	group := memoryGroup(t, floodedMemory)
	lasts, list := chosen(floods(), 6)
	f := programs.New(t, programs.OwnSandbox)
	a := certtest.New(t)
	cert, key := a.Server("scheduler")
	scheduler := inGroup(f, group, "forerunner-scheduler", "--listen", "127.0.0.1:0", "--data", filepath.Join(f.Dir, "scheduler"),
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", a.File)
	address := scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)[1]
	who := func(name string, units ...string) []string {
		cert, key := a.Client(name, units...)
		return []string{"--tls-ca", a.File, "--tls-client-cert", cert, "--tls-client-key", key}
	}
	remote := "grpcs://" + address
	data := filepath.Join(f.Dir, "worker")
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	worker := f.Start(append([]string{
		"forerunner-worker", "--data", data, "--scheduler", remote, "--storage", remote, "--state", remote,
	}, who("worker", auth.WorkersGroup)...)...)
	worker.WaitFor(&worker.Stderr, programs.ReadyLine)
	bob := who("bob")
	pressed(f, "no flood", scheduler, func() { actions(f, "quiet", remote, bob, lasts) })
	authority, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	mallory, err := tls.LoadX509KeyPair(a.Client("mallory"))
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []bool{false, true} {
		config := &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"h2"}}
		if known {
			config.Certificates = []tls.Certificate{mallory}
		}
		for _, flood := range list {
			name := fmt.Sprintf("%s, identity %v", flood.name, known)
			pressed(f, name, scheduler, func() {
				stop := flood.start(address, config)
				actions(f, strings.ReplaceAll(name, " ", "-"), remote, bob, lasts)
				t.Logf("%d connections were made for it", stop())
			})
		}
	}
	worker.Drain()
	scheduler.Drain()
}

// TestSmallMemory has a scheduler with its storage do the work of a small farm in 60 MB.
func TestSmallMemory(t *testing.T) {
	group := memoryGroup(t, 60_000_000)
	f := programs.New(t, programs.OwnSandbox)
	scheduler := inGroup(f, group, "forerunner-scheduler", "--listen", "127.0.0.1:0", "--data", filepath.Join(f.Dir, "scheduler"))
	address := scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)[1]
	worker := f.Worker("worker", address, address)
	pressed(f, "small farm", scheduler, func() {
		t.Run("clients", func(t *testing.T) {
			for i := range 4 {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					own := *f
					own.T = t
					actions(&own, fmt.Sprint("client", i), "grpc://"+address, nil, time.Second)
				})
			}
		})
	})
	worker.Drain()
	scheduler.Drain()
}

// start floods until stop is called, but at most for a while, because the CPU time of the flooding
// clients is not part of the test. stop returns the number of connections.
func (fl flood) start(address string, config *tls.Config) (stop func() int64) {
	var stopped atomic.Bool
	var made atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[*rudeClient]bool{}
	dial := dialRude
	switch {
	case fl.raw:
		dial, config = dialRaw, nil
	case fl.pages:
		dial, config = dialRaw, config.Clone()
		config.NextProtos = nil
	}
	from := cmp.Or(fl.from, "127.0.0.66")
	for range fl.clients {
		all.Go(func() {
			for !stopped.Load() {
				c, err := dial(address, from, config)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				made.Add(1)
				mu.Lock()
				open[c] = true
				mu.Unlock()
				if stopped.Load() {
					c.close()
				}
				fl.press(c)
				c.close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			}
		})
	}
	end := func() {
		stopped.Store(true)
		mu.Lock()
		defer mu.Unlock()
		for c := range open {
			c.close()
		}
	}
	timer := time.AfterFunc(4*floodLasts, end)
	return func() int64 {
		timer.Stop()
		end()
		all.Wait()
		return made.Load()
	}
}

// actions runs actions for a while, one at a time. Each uploads 5 MB and downloads 1 MB. It prints
// how long they took.
func actions(f *programs.Test, name, remote string, who []string, lasts time.Duration) {
	f.Helper()
	var took []time.Duration
	for end := time.Now().Add(lasts); time.Now().Before(end) || len(took) < 3; {
		tag := fmt.Sprintf("%s-%d", name, len(took))
		f.Write(tag+"/text", strings.Repeat(tag+"\n", 5<<20/len(tag)))
		start := time.Now()
		p := f.Start(append(append([]string{
			"forerunner", "exec", "--quiet", "--remote", remote, "--input", tag, "--output", "out",
			"--download", tag + "-got",
		}, who...), "--", "/bin/sh", "-c", "head -n 1 text; head -c 1000000 text >out")...)
		p.Expect(0, tag+"\n")
		took = append(took, time.Since(start))
		want := strings.Repeat(tag+"\n", 5<<20/len(tag))[:1000000]
		if got, err := os.ReadFile(filepath.Join(f.Dir, tag+"-got", "out")); err != nil || string(got) != want {
			f.Fatalf("%s: %d bytes, %v", tag, len(got), err)
		}
	}
	slices.Sort(took)
	f.Logf("%d actions: median %v, longest %v", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

// pressed calls do and prints how much memory that took. The scheduler must survive.
func pressed(f *programs.Test, name string, scheduler *programs.Process, do func()) {
	f.Helper()
	proc := fmt.Sprintf("/proc/%d", scheduler.Pid())
	if err := os.WriteFile(proc+"/clear_refs", []byte("5"), 0); err != nil { // the peak starts from the present
		f.Fatal(err)
	}
	f.Logf("%s:", name)
	do()
	text, err := os.ReadFile(proc + "/status")
	if err != nil {
		f.Fatalf("%s: the scheduler has ended: %v", name, err)
	}
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "\n")
	f.Logf("  resident at most %s", strings.TrimSpace(peak))
}

// memoryGroup makes a group of cgroup v1 below the test's own, with a limit in bytes.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var own string
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			own = parts[2]
		}
	}
	group := filepath.Join("/sys/fs/cgroup/memory", own, fmt.Sprintf("forerunner-test-%d-%s", os.Getpid(), t.Name()))
	if err := os.Mkdir(group, 0o755); err != nil {
		programs.Needs(t, "a group of cgroup v1 for memory: %v", err)
	}
	t.Cleanup(func() {
		// A process that was killed a moment ago may still be in it.
		for end := time.Now().Add(programs.Timeout); ; time.Sleep(programs.PollInterval) {
			if err := os.Remove(group); err == nil || time.Now().After(end) {
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
	if err := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Fatal(err)
	}
	return group
}

// inGroup starts a program in a group.
func inGroup(f *programs.Test, group, program string, args ...string) *programs.Process {
	f.Helper()
	return f.Start(append([]string{
		"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, group, filepath.Join(f.Programs, program),
	}, args...)...)
}
