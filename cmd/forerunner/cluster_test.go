//go:build cluster

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cmd/remote"
)

const (
	clusterActions = 2000
	clusterClients = 40
	clusterTimeout = 10 * time.Minute
)

// TestCluster runs 2,000 actions with known outputs on hosts of their own addresses, in network
// namespaces: two schedulers, storage, a Redis, four workers of two size classes. Meanwhile the
// network between them is slow and loses packets, is cut, and each of them is killed.
func TestCluster(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: shareFolder}
	n := newNetwork(f)
	c := startCluster(f, n)
	count := &tally{}
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	var faults sync.WaitGroup
	faults.Go(func() { c.disturb(ctx, count) })
	start := time.Now()
	c.runActions(ctx, count)
	took := time.Since(start)
	cancel()
	faults.Wait()
	runs := f.starts()
	again := 0
	for i := range clusterActions {
		if runs[fmt.Sprint(i)] == 0 {
			t.Errorf("action %d has a result and never ran", i)
		}
		again += runs[fmt.Sprint(i)] - 1
	}
	t.Logf("%d actions in %s: %d right, %d wrong, %d failed; %d runs were repeated; %d faults, %d calls of clients tried again",
		clusterActions, took.Round(time.Second), count.right.Load(), count.wrong.Load(), count.failed.Load(), again,
		count.faults.Load(), count.again.Load())
	if count.right.Load() != clusterActions {
		t.Error("not every result is right")
	}
	c.stop()
}

// A tally counts what happened.
type tally struct{ right, wrong, failed, again, faults atomic.Int64 }

// A network has hosts of one address each, on one bridge.
type network struct {
	*farmTest
	prefix string // of the names of its namespaces
	fast   bool   // the kernel cannot slow it down
}

func newNetwork(f *farmTest) *network {
	f.Helper()
	n := &network{farmTest: f, prefix: fmt.Sprintf("forerunner-%d-", os.Getpid())}
	f.Cleanup(func() {
		list, err := os.ReadDir("/run/netns")
		if err != nil {
			f.Error(err)
		}
		for _, entry := range list {
			if strings.HasPrefix(entry.Name(), n.prefix) {
				n.ip("netns", "delete", entry.Name())
			}
		}
	})
	n.ip("netns", "add", n.prefix+"hub")
	n.ip("-n", n.prefix+"hub", "link", "add", "bridge", "type", "bridge")
	n.ip("-n", n.prefix+"hub", "link", "set", "bridge", "up")
	return n
}

func (n *network) ip(args ...string) {
	n.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.Errorf("ip %s: %v: %s", args, err, out)
	}
}

// host makes the host of a number.
func (n *network) host(number int) *host {
	n.Helper()
	h := &host{network: n, name: fmt.Sprint(n.prefix, number), port: fmt.Sprint("port", number), address: fmt.Sprint("10.77.0.", number)}
	n.ip("netns", "add", h.name)
	n.ip("-n", h.name, "link", "add", "eth0", "type", "veth", "peer", "name", h.port, "netns", n.prefix+"hub")
	n.ip("-n", n.prefix+"hub", "link", "set", h.port, "master", "bridge", "up")
	n.ip("-n", h.name, "address", "add", h.address+"/24", "dev", "eth0")
	n.ip("-n", h.name, "link", "set", "eth0", "up")
	n.ip("-n", h.name, "link", "set", "lo", "up")
	netem := exec.Command("nsenter", "--net=/run/netns/"+h.name, "tc", "qdisc", "add", "dev", "eth0", "root", "netem",
		"delay", "1ms", "loss", "0.1%")
	if out, err := netem.CombinedOutput(); err != nil && !n.fast {
		n.fast = true
		n.Logf("the network has no latency and no loss: %v: %s", err, out)
	}
	return h
}

// A host is a network namespace.
type host struct {
	*network
	name, port, address string
}

func (h *host) run(args ...string) *process {
	h.Helper()
	if !filepath.IsAbs(args[0]) {
		args[0] = filepath.Join(h.programs, args[0])
	}
	return h.start(append([]string{"/usr/bin/nsenter", "--net=/run/netns/" + h.name}, args...)...)
}

// cut takes the host off the network until mend.
func (h *host) cut()  { h.ip("-n", h.prefix+"hub", "link", "set", h.port, "down") }
func (h *host) mend() { h.ip("-n", h.prefix+"hub", "link", "set", h.port, "up") }

// avoid has nothing go from h to another host until meet.
func (h *host) avoid(other *host) {
	h.ip("-n", h.name, "route", "add", "blackhole", other.address+"/32")
}

func (h *host) meet(other *host) {
	h.ip("-n", h.name, "route", "del", "blackhole", other.address+"/32")
}

// dial connects from the host.
func (h *host) dial(ctx context.Context, address string) (net.Conn, error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	there, err := os.Open("/run/netns/" + h.name)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	return conn, err
}

// A cluster is what runs on the hosts.
type cluster struct {
	*farmTest
	client, storage, redis *host
	schedulers, workers    []*host

	mu       sync.Mutex
	programs map[*host]*process
	begin    map[*host]func() *process
}

func startCluster(f *farmTest, n *network) *cluster {
	f.Helper()
	c := &cluster{farmTest: f, client: n.host(1), storage: n.host(2), redis: n.host(3), programs: map[*host]*process{}, begin: map[*host]func() *process{}}
	c.begin[c.redis] = func() *process {
		return c.redis.run("/usr/bin/redis-server", "--bind", c.redis.address, "--port", "6379", "--protected-mode", "no",
			"--save", "", "--dir", f.dir)
	}
	c.begin[c.storage] = func() *process {
		return c.storage.run("forerunner-scheduler", "--listen", c.storage.address+":8980", "--insecure-listen", "--data", filepath.Join(f.dir, "storage"), "--cache-size", "2G")
	}
	var both []string
	for i := range 2 {
		h := n.host(10 + i)
		c.schedulers = append(c.schedulers, h)
		both = append(both, h.address+":8980")
		c.begin[h] = func() *process {
			return h.run("forerunner-scheduler", "--listen", h.address+":8980", "--insecure-listen", "--data", filepath.Join(f.dir, h.name),
				"--storage", "grpc://"+c.storage.address+":8980", "--state", "redis://"+c.redis.address+":6379",
				"--lease", "main", "--lease-time", "3s", "--settle", "3s", "--worker-slack", "10s")
		}
	}
	for i, class := range []string{"1", "1", "4", "4"} {
		h := n.host(20 + i)
		c.workers = append(c.workers, h)
		c.begin[h] = func() *process {
			return h.run("forerunner-worker", "--data", filepath.Join(f.dir, h.name), "--id", "name="+h.name, "--size-class", class,
				"--scheduler", "grpc://"+strings.Join(both, ","), "--storage", "grpc://"+c.storage.address+":8980",
				"--slots", "2", "--cache-size", "1G", "--cgroup", "off")
		}
	}
	for _, h := range append([]*host{c.redis, c.storage}, append(c.schedulers, c.workers...)...) {
		c.restart(h)
	}
	return c
}

// restart kills what runs on a host, if anything does, and begins it.
func (c *cluster) restart(h *host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.programs[h]; p != nil {
		p.kill()
	}
	c.programs[h] = c.begin[h]()
}

func (c *cluster) signal(h *host, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs[h].signal(s)
}

// stop ends the workers, and with the test all others.
func (c *cluster) stop() {
	for _, h := range c.workers {
		c.programs[h].drain()
	}
}

// disturb makes one fault after the other, evenly over the actions.
func (c *cluster) disturb(ctx context.Context, count *tally) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	faults := []struct {
		name string
		do   func()
	}{
		{"a scheduler is killed", func() { c.restart(c.schedulers[0]) }},
		{"a worker is killed", func() { c.restart(c.workers[0]) }},
		{"half the workers are off the network", func() {
			c.workers[1].cut()
			c.workers[2].cut()
			pause(15 * time.Second)
			c.workers[1].mend()
			c.workers[2].mend()
		}},
		{"the other scheduler is killed", func() { c.restart(c.schedulers[1]) }},
		{"half the workers do not reach either scheduler", func() {
			for _, w := range c.workers[2:] {
				w.avoid(c.schedulers[0])
				w.avoid(c.schedulers[1])
			}
			pause(15 * time.Second)
			for _, w := range c.workers[2:] {
				w.meet(c.schedulers[0])
				w.meet(c.schedulers[1])
			}
		}},
		{"the storage is killed", func() { c.restart(c.storage) }},
		{"a worker does not reach the storage", func() {
			c.workers[3].avoid(c.storage)
			pause(10 * time.Second)
			c.workers[3].meet(c.storage)
		}},
		{"the Redis answers nobody", func() {
			c.signal(c.redis, syscall.SIGSTOP)
			pause(8 * time.Second)
			c.signal(c.redis, syscall.SIGCONT)
		}},
		{"the Redis is killed, and forgets", func() { c.restart(c.redis) }},
		{"a worker is killed", func() { c.restart(c.workers[2]) }},
	}
	for i, fault := range faults {
		for count.right.Load() < int64((i+1)*clusterActions/(len(faults)+2)) && ctx.Err() == nil {
			pause(100 * time.Millisecond)
		}
		if ctx.Err() != nil {
			return
		}
		c.Logf("%d results: %s", count.right.Load(), fault.name)
		count.faults.Add(1)
		fault.do()
	}
}

// runActions runs all actions and compares what they print with what they have to.
func (c *cluster) runActions(ctx context.Context, count *tally) {
	var schedulers []string
	for _, h := range c.schedulers {
		schedulers = append(schedulers, h.address+":8980")
	}
	conn := c.connect(schedulers)
	defer conn.close()
	numbers := make(chan int)
	var clients sync.WaitGroup
	for range clusterClients {
		clients.Go(func() {
			for i := range numbers {
				c.runAction(ctx, conn, i, count)
			}
		})
	}
	for i := range clusterActions {
		numbers <- i
	}
	close(numbers)
	clients.Wait()
}

// runAction has one action run, as often as the farm asks for that.
func (c *cluster) runAction(ctx context.Context, conn *connections, i int, count *tally) {
	want := fmt.Sprintf("action %d\n", i)
	script := fmt.Sprintf("echo %d >> %s/starts; sleep 0.1; echo action %[1]d", i, c.dir)
	for ; ctx.Err() == nil; count.again.Add(1) {
		outcome, err := remote.Execute(ctx, conn, remote.Request{
			Function: digest.SHA256, Command: newCommand([]string{"/bin/sh", "-c", script}, nil, "", nil, nil),
		})
		if err == nil {
			err = outcome.Status
		}
		var got []byte
		if err == nil {
			client := cas.NewClient(conn, cas.ClientOptions{})
			got, err = remote.Output(ctx, client, digest.SHA256, outcome.Result.GetStdoutRaw(), outcome.Result.GetStdoutDigest())
		}
		switch {
		case err != nil: // what a build tool tries again
			c.Logf("action %d: %v", i, err)
			continue
		case outcome.Result.GetExitCode() != 0 || string(got) != want:
			c.Errorf("action %d: exit code %d, printed %q", i, outcome.Result.GetExitCode(), got)
			count.wrong.Add(1)
		default:
			count.right.Add(1)
		}
		return
	}
	count.failed.Add(1)
}

// connections are to a scheduler and to the storage, from the client's host.
type connections struct {
	scheduler, storage *grpc.ClientConn
}

func (c *cluster) connect(schedulers []string) *connections {
	c.Helper()
	dial := func(address string, dialer func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dialer))
		if err != nil {
			c.Fatal(err)
		}
		return conn
	}
	return &connections{
		scheduler: dial("schedulers", func(ctx context.Context, _ string) (conn net.Conn, err error) {
			for _, address := range schedulers {
				if conn, err = c.client.dial(ctx, address); err == nil {
					return conn, nil
				}
			}
			return nil, err
		}),
		storage: dial(c.storage.address+":8980", c.client.dial),
	}
}

func (c *connections) of(method string) *grpc.ClientConn {
	if strings.Contains(method, ".Execution/") {
		return c.scheduler
	}
	return c.storage
}

func (c *connections) close() {
	_ = c.scheduler.Close()
	_ = c.storage.Close()
}

// Invoke implements grpc.ClientConnInterface.
func (c *connections) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.of(method).Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *connections) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.of(method).NewStream(ctx, desc, method, opts...)
}
