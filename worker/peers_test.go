package worker

import (
	"bytes"
	"context"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/vfs"
)

// serveStore serves a worker's store to other workers, over the returned connection.
func serveStore(t *testing.T, store *disk.Store, options ...grpc.ServerOption) *grpc.ClientConn {
	return serve(t, func(s *grpc.Server) { peer.NewServer(store, nil).Register(s) }, options...)
}

// garble has each blob that is read be another one.
func garble(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, r)
	if read, ok := answer.(*repb.BatchReadBlobsResponse); ok {
		for _, b := range read.GetResponses() {
			b.Data = bytes.ToUpper(b.GetData())
		}
	}
	return answer, err
}

// TestInputsFromPeers runs an action of one worker on a second one, and then on a third one for
// which storage has only its command.
func TestInputsFromPeers(t *testing.T) {
	needRoot(t)
	first := newFarm(t)
	work := spec{inputs: tree{"a": "first\n", "d/b": "second\n", "d/e/c": "third\n"}, shell: "cat a d/b d/e/c > out", paths: []string{"out"}}
	assertOK(t, first.run(t, work))

	dead, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	near := map[string]*grpc.ClientConn{
		"grpc://dead:1": dead, "grpc://liar:1": serveStore(t, first.local, grpc.UnaryInterceptor(garble)),
		"grpc://first:1": serveStore(t, first.local), "grpc://again:1": serveStore(t, first.local),
	}
	for _, named := range [][]string{{"grpc://first:1"}, {"grpc://dead:1", "grpc://liar:1", "grpc://again:1"}} {
		registry := prometheus.NewRegistry()
		cold := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) {
			o.CacheAddress, o.Metrics = "grpc://cold:1", registry
			o.DialPeer = func(address string) (*grpc.ClientConn, error) { return near[address], nil }
		}})
		cold.scheduler.near = named
		j := cold.job(t, work)
		defer cold.reads.hold(allReads)()
		cold.reads.free = map[string]bool{j.desired.GetAction().GetCommandDigest().GetHash(): true}
		cold.scheduler.work <- j
		r := j.result(t)
		assertOK(t, r)
		if got := cold.read(t, r.GetResult().GetOutputFiles()[0].GetDigest()); got != "first\nsecond\nthird\n" {
			t.Errorf("%q came out", got)
		}
		if cold.scheduler.caches[0] != "grpc://cold:1" {
			t.Errorf("the scheduler heard of stores at %q", cold.scheduler.caches)
		}
		cold.drain() // an action is counted after its result has gone
		cold.wait(t)
		if n := counter(t, registry, "forerunner_worker_peer_blobs_total"); n < 6 {
			t.Errorf("%v blobs came from peers, want three files and three directories", n)
		}
	}
}

// counter returns what a metric has counted.
func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	check(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
