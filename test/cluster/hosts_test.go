//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	linePort    = 8980 // of a line to a program,
	programPort = 8981 // of the program itself
	redisPort   = 6379
	watchPort   = 26379 // of a Sentinel

	smallDiskBytes = 128 << 20
)

// A cluster has the programs on the hosts.
type cluster struct {
	*farm
	tally
	client, storage            *host
	redis, schedulers, workers []*host
	// lines has a line to the programs on storage and schedulers, and one that leads to whichever
	// scheduler serves.
	lines    map[*host]*line
	balancer *line
	disk     *sickDisk // small, of the last of workers

	mu       sync.Mutex
	programs map[*host]*programs.Process
	begin    map[*host]func() *programs.Process
	twins    map[*host]func() *programs.Process // another process with the identity of the worker there
}

func startCluster(f *programs.Test, n *network) *cluster {
	f.Helper()
	c := &cluster{
		farm: &farm{Test: f, done: outcomes{counts: map[string]int{}}}, client: n.host(1), storage: n.host(2), redis: []*host{n.host(3), n.host(4)},
		schedulers: []*host{n.host(10), n.host(11)},
		lines:      map[*host]*line{}, programs: map[*host]*programs.Process{}, begin: map[*host]func() *programs.Process{},
		twins: map[*host]func() *programs.Process{},
	}
	f.Logf("latency and loss: by tc netem: %v; else by proxies of the test", c.client.slowed)
	c.plan(n)
	for _, h := range append([]*host{c.storage}, c.schedulers...) {
		c.lines[h] = newLine(h, h.at(linePort), h.at(programPort))
	}
	c.balancer = newLine(c.client, c.client.at(linePort), c.schedulers[0].at(programPort), c.schedulers[1].at(programPort))
	for _, h := range c.redis {
		c.restart(h)
		c.Eventually("Redis answers", func() bool { return c.ask(h, redisPort, "PING") == "PONG" })
	}
	for _, h := range append([]*host{c.storage}, c.redis...) {
		c.sentinel(h)
	}
	for _, h := range append(append([]*host{c.storage}, c.schedulers...), c.workers...) {
		c.restart(h)
	}
	c.calls = &programs.SplitConn{Execution: c.dial(c.client.at(linePort)), Storage: c.dial(c.storage.at(linePort))}
	c.admin = admin.NewSchedulerClient(c.calls.Execution)
	return c
}

// plan decides which programs run on each host.
func (c *cluster) plan(n *network) {
	c.Helper()
	path := func(h *host) string { return filepath.Join(c.Dir, h.name) }
	for _, h := range c.redis {
		c.begin[h] = func() *programs.Process {
			args := []string{
				"/usr/bin/redis-server", "--bind", h.address, "--port", fmt.Sprint(redisPort), "--protected-mode", "no",
				"--save", "", "--repl-diskless-sync-delay", "0", "--dir", c.Dir,
			}
			if m := c.master(); m != h {
				args = append(args, "--replicaof", m.address, fmt.Sprint(redisPort))
			}
			return h.run(args...)
		}
	}
	serve := func(h *host, args ...string) *programs.Process {
		return h.run(append([]string{"forerunner-scheduler", "--listen", h.at(programPort), "--insecure-listen", "--data", path(h)}, args...)...)
	}
	storage := "grpc://" + c.storage.at(linePort)
	state := fmt.Sprintf("redis+sentinel://%s?master_name=farm&addr=%s&addr=%s",
		c.storage.at(watchPort), c.redis[0].at(watchPort), c.redis[1].at(watchPort))
	c.begin[c.storage] = func() *programs.Process { return serve(c.storage, "--cache-size", "4G", "--cache-writes", "clients") }
	for _, h := range c.schedulers {
		c.begin[h] = func() *programs.Process {
			return serve(h, "--storage", storage, "--state", state, "--lease", "main")
		}
	}
	both := "grpc://" + c.schedulers[0].at(linePort) + "," + c.schedulers[1].at(linePort)
	for i, class := range []string{"1", "1", "4", "4"} {
		h := n.host(20 + i)
		c.workers = append(c.workers, h)
		data := path(h)
		c.Cleanup(func() { programs.ExpectNoMounts(c.T, data) })
		if i == 3 {
			c.disk = newSickDisk(c.Test, data, smallDiskBytes)
		}
		start := func(data string) *programs.Process {
			return h.run("forerunner-worker", "--data", data, "--id", "name="+h.name, "--size-class", class,
				"--scheduler", both, "--storage", storage, "--slots", "2", "--cache-size", "1G")
		}
		c.begin[h] = func() *programs.Process { return start(data) }
		c.twins[h] = func() *programs.Process {
			c.Cleanup(func() { programs.ExpectNoMounts(c.T, data+"-twin") })
			return start(data + "-twin")
		}
	}
}

// sentinel starts a Sentinel on a host.
func (c *cluster) sentinel(h *host) {
	c.Helper()
	h.run("/usr/bin/redis-sentinel", c.Write(h.name+".sentinel", fmt.Sprintf("port %d\nbind %s\nprotected-mode no\n"+
		"sentinel monitor farm %s %d 2\nsentinel down-after-milliseconds farm 1000\nsentinel failover-timeout farm 5000\n",
		watchPort, h.address, c.redis[0].address, redisPort)))
	c.Eventually("a Sentinel knows the replica", func() bool {
		return strings.Count(c.ask(h, watchPort, "SENTINEL", "REPLICAS", "farm"), "runid") == 1
	})
}

// ask asks a Redis or a Sentinel; empty: it does not answer.
func (c *cluster) ask(h *host, port int, command ...string) string {
	args := append([]string{"--net=/run/netns/" + c.client.name, "timeout", "5", "redis-cli", "-h", h.address, "-p", fmt.Sprint(port)}, command...)
	out, _ := exec.Command("nsenter", args...).Output()
	return strings.TrimSpace(string(out))
}

// master is the host of the Redis that Sentinels say is the master.
func (c *cluster) master() *host {
	said := c.ask(c.storage, watchPort, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "farm")
	if strings.HasPrefix(said, c.redis[1].address+"\n") {
		return c.redis[1]
	}
	return c.redis[0]
}

// serving returns the scheduler that has the lease, nil if none does.
func (c *cluster) serving() *host {
	for _, h := range c.schedulers {
		if conn, err := c.client.dial(context.Background(), h.at(programPort)); err == nil {
			_ = conn.Close()
			return h
		}
	}
	return nil
}

// restart kills what runs on a host, if anything does, and begins it.
func (c *cluster) restart(h *host) {
	c.kill(h)
	c.launch(h)
}

func (c *cluster) kill(h *host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.programs[h]; p != nil {
		p.Kill()
	}
}

func (c *cluster) launch(h *host) {
	p := c.begin[h]()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs[h] = p
}

// on returns what runs on a host.
func (c *cluster) on(h *host) *programs.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.programs[h]
}

// machine is the host of a worker.
func (c *cluster) machine(h *host) machine {
	m := machine{name: h.name, process: func() *programs.Process { return c.on(h) }, launch: func() { c.launch(h) }, twin: c.twins[h]}
	if h == c.workers[3] {
		m.disk = c.disk
	}
	return m
}

// stop ends the workers, and with the test all others.
func (c *cluster) stop() {
	for _, h := range c.workers {
		c.on(h).Drain()
	}
}

// dial connects from the client's host.
func (c *cluster) dial(address string) *grpc.ClientConn {
	c.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.client.dial(ctx, address) }))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}
