package test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/kv/redistest"
)

var waitsLine = regexp.MustCompile(`waiting for the lease`)

// TestBazelThroughTakeover kills one of two schedulers in the middle of a real build: the other one,
// which has waited for its lease, takes the actions that run over, and no action is started twice.
// The worker has both addresses; Bazel, which takes one, has that of a load balancer.
func TestBazelThroughTakeover(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	bazel := debianBazel(t)
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: shareFolder}
	workspace := restartWorkspace(f)
	_, storage := f.scheduler("--data", filepath.Join(f.dir, "storage"), "--cache-writes", "clients")
	state := "redis://" + redistest.Start(t).Addr
	begin := func(listen string) *process {
		return f.start("forerunner-scheduler", "--data", filepath.Join(f.dir, listen), "--listen", listen, "--storage", "grpc://"+storage,
			"--state", state, "--lease", "main", "--lease-time", "2s", "--settle", "5s")
	}
	listen := []string{freeAddress(t), freeAddress(t)}
	first := begin(listen[0])
	first.waitFor(&first.stdout, servesLine)
	second := begin(listen[1])
	second.waitFor(&second.stderr, waitsLine)
	both := strings.Join(listen, ",")
	worker := f.worker("worker", both, storage, "--slots", fmt.Sprint(gatedActions))
	c := newBazelClient(t, bazel, workspace, "--config=remote", "--jobs=20", "--remote_retries=20",
		"--remote_executor=grpc://"+balancer(t, listen), "--remote_cache=grpc://"+storage)
	b := startGated(f, c)
	b.lose(first)
	second.waitFor(&second.stdout, servesLine)
	first = begin(listen[0])
	first.waitFor(&first.stderr, waitsLine)
	b.finish(both)
	c.shutdown(t)
	second.drain()
	first.waitFor(&first.stdout, servesLine)
	worker.drain()
	first.drain()
}

// balancer forwards connections to the first of some addresses that takes them, and returns its own.
func balancer(t *testing.T, to []string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			forwarding.Go(func() { forward(client, to) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		forwarding.Wait()
	})
	return listener.Addr().String()
}

// forward copies both ways until either side ends.
func forward(client net.Conn, to []string) {
	defer client.Close()
	for _, address := range to {
		server, err := net.Dial("tcp", address)
		if err != nil {
			continue
		}
		defer server.Close()
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		_, _ = io.Copy(server, client)
		_ = server.Close()
		back.Wait()
		return
	}
}
