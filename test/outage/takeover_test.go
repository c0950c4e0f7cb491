package outage

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/records/redistest"
	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

var waitsLine = regexp.MustCompile(`waiting for the lease`)

// testTakeover kills one of two schedulers in the middle of a real build: the other one,
// which has waited for its lease, takes the actions that run over, and no action is started twice.
// The worker has both addresses; Bazel, which takes one, has that of a load balancer.
func testTakeover(f *programs.Test, c *bazel.Client) {
	_, storage := f.Scheduler("--data", filepath.Join(f.Dir, "storage"), "--cache-writes", "clients")
	state := "redis://" + redistest.Start(f.T).Addr
	begin := func(listen string) *programs.Process {
		return f.With("FORERUNNER_LEASE_TIME=2s", "FORERUNNER_SETTLE=5s").Start("forerunner-scheduler", "--data", filepath.Join(f.Dir, listen),
			"--listen", listen, "--storage", "grpc://"+storage, "--state", state, "--lease", "main")
	}
	listen := []string{programs.FreeAddress(f.T), programs.FreeAddress(f.T)}
	first := begin(listen[0])
	first.WaitFor(&first.Stdout, programs.ServesLine)
	second := begin(listen[1])
	second.WaitFor(&second.Stderr, waitsLine)
	both := strings.Join(listen, ",")
	worker := f.Worker("worker", both, storage, "--slots", fmt.Sprint(gatedActions))
	b := startGated(f, c.With("--remote_executor=grpc://"+balancer(f.T, listen), "--remote_cache=grpc://"+storage), "takeover")
	b.lose(first)
	second.WaitFor(&second.Stdout, programs.ServesLine)
	first = begin(listen[0])
	first.WaitFor(&first.Stderr, waitsLine)
	b.finish(both)
	second.Drain()
	first.WaitFor(&first.Stdout, programs.ServesLine)
	worker.Drain()
	first.Drain()
}

// balancer forwards connections to the first of some addresses that takes them, and returns its
// own.
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
