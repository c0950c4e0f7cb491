//go:build cluster

package cluster

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	clusterActions = 2000
	clusterClients = 40
	// clusterTimeout bounds the whole, on a machine that is slow and has more to do.
	clusterTimeout = 30 * time.Minute
)

// TestCluster runs 2,000 actions with known outputs, and a Bazel build again and again, on hosts of
// their own addresses, in network namespaces: two schedulers, storage, a Redis that Sentinels
// watch, four workers of two size classes. Meanwhile the network between them is slow and loses
// things, is cut, each of them is killed, and the disk of one is full.
func TestCluster(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	program := bazel.Debian(t)
	f := programs.New(t, programs.ShareFolder,
		"FORERUNNER_LEASE_TIME=3s", "FORERUNNER_SETTLE=5s", "FORERUNNER_WORKER_SLACK=10s", "FORERUNNER_CGROUP=off")
	c := startCluster(f, newNetwork(f))
	steps := append(c.faults(), c.kills()...)
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	var all sync.WaitGroup
	start := time.Now()
	all.Go(func() {
		c.disturb(ctx, steps)
		c.calm.Store(true)
	})
	all.Go(func() { c.runActions(ctx, len(steps)) })
	all.Go(func() { c.build(ctx, program) })
	all.Wait()
	c.report(time.Since(start))
	c.stop()
}

// A tally has the counts of events.
type tally struct {
	faults, killed atomic.Int64
	builds, spawns atomic.Int64
	late           atomic.Int64 // runs begun after the result existed

	// calm: there will be no further faults.
	calm atomic.Bool
}

// report prints the counts, and fails the test if one of them is wrong.
func (c *cluster) report(took time.Duration) {
	c.Helper()
	c.countLate(false)
	runs, again, unrun := c.Starts(), 0, 0
	for i := range clusterActions {
		n := runs[actionName(i)]
		if n == 0 {
			unrun++
		}
		again += max(0, n-1)
	}
	c.Logf("%d actions in %s: %d right, %d wrong, %d failed, %d with a result and no run", clusterActions,
		took.Round(time.Second), c.right.Load(), c.wrong.Load(), c.failed.Load(), unrun)
	c.Logf("%d faults, %d kills at a stage; %d runs were repeated, %d of them begun after the result was acknowledged",
		c.tally.faults.Load(), c.killed.Load(), again, c.late.Load())
	c.Logf("clients tried %d calls again; the longest wait for a result was %s", c.again.Load(),
		c.done.longest.Round(time.Second))
	c.Logf("%d Bazel builds with %d actions, all right", c.builds.Load(), c.spawns.Load())
	switch {
	case c.right.Load() != clusterActions || unrun > 0:
		c.Error("not every result is right")
	case c.late.Load() > 0:
		c.Error("actions were run again although their results were acknowledged")
	case c.builds.Load() == 0:
		c.Error("no build")
	}
}
