package farm

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/freeport"
)

// TestSchedulerThatFailsLeavesNothing has a scheduler fail after all but its pages stand: neither
// the goroutines of its gRPC server nor its port stay.
func TestSchedulerThatFailsLeavesNothing(t *testing.T) {
	before := grpcWorkers()
	taken := silent(t)
	s := Scheduler{
		Listen: freeport.Address(t), HTTP: taken.Addr().String(), Data: t.TempDir(), Storage: storage.Settings{CacheSize: "10M"}, Logger: zap.NewNop(),
	}
	if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--http") {
		t.Fatalf("%v, want that --http is in use", err)
	}
	for deadline := time.Now().Add(patience); grpcWorkers() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there are %d goroutines for calls, before there were %d", grpcWorkers(), before)
		}
	}
	s.HTTP = ""
	startTurns(t, s).serves()
}

// grpcWorkers returns how many goroutines wait for the calls of gRPC servers.
func grpcWorkers() int {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			return strings.Count(string(stacks[:n]), "grpc.(*Server).serverWorker(")
		}
		stacks = make([]byte, 2*n)
	}
}
