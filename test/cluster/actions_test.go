//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
)

func actionName(i int) string { return fmt.Sprintf("action%d", i) }

// runActions runs all actions, as many at a time as there are clients, and evenly over the steps of disturb.
func (c *cluster) runActions(ctx context.Context, steps int) {
	numbers := make(chan int)
	var clients sync.WaitGroup
	for range clusterClients {
		clients.Go(func() {
			for i := range numbers {
				if c.runAction(ctx, work{name: actionName(i), middle: "sleep 0.1"}) {
					c.right.Add(1)
				}
			}
		})
	}
	for i := range clusterActions {
		until(ctx, 0, func() bool {
			done := c.tally.faults.Load() + c.killed.Load()
			return c.calm.Load() || int64(i) < (done+2)*clusterActions/int64(steps+2)
		})
		numbers <- i
	}
	close(numbers)
	clients.Wait()
}

// work is what an action does: it says in "starts" that it begins, does what middle says, and makes of its input
// what has to be known.
type work struct {
	name, middle, instance string
}

func (w work) input() string { return fmt.Sprintf("this is %s\n", w.name) }
func (w work) want() string  { return strings.ToUpper(w.input() + w.input()) }

// runAction has an action run, as often as the farm asks for that, and reports whether its result was right.
func (c *cluster) runAction(ctx context.Context, w work) bool {
	began := time.Now()
	c.Write(filepath.Join("in", w.name, "in"), w.input())
	for ; ctx.Err() == nil; c.again.Add(1) {
		got, err := c.execute(ctx, w)
		if err != nil { // what a build tool tries again
			c.Logf("%s: %v", w.name, err)
			pause(ctx, 100*time.Millisecond)
			continue
		}
		c.acknowledged(w.name, time.Since(began))
		if got != w.want() {
			c.Errorf("%s made %q", w.name, got)
			c.wrong.Add(1)
		}
		return got == w.want()
	}
	c.failed.Add(1)
	return false
}

// execute runs an action once and returns its output and what it printed.
func (c *cluster) execute(ctx context.Context, w work) (string, error) {
	inputs, err := client.Scan(ctx, digest.SHA256, []client.Mount{{Dir: filepath.Join(c.Dir, "in", w.name)}}, nil)
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("echo %s >> %s/starts; %s; tr a-z A-Z < in > out && cat out", w.name, c.Dir, w.middle)
	outcome, err := client.Execute(ctx, c.calls, client.Request{
		Inputs: inputs, Command: client.NewCommand([]string{"/bin/sh", "-c", script}, []string{"out"}, "", nil, nil),
		Metadata: &repb.RequestMetadata{TargetId: w.name}, Instance: w.instance,
	})
	if err == nil {
		err = outcome.Status
	}
	if err != nil {
		return "", err
	}
	storage, result := casclient.New(c.calls, casclient.Options{}), outcome.Result
	printed, err := client.Output(ctx, storage, digest.SHA256, result.GetStdoutRaw(), result.GetStdoutDigest())
	if err != nil {
		return "", err
	}
	if result.GetExitCode() != 0 || len(result.GetOutputFiles()) != 1 {
		return fmt.Sprintf("exit code %d, %s%s", result.GetExitCode(), printed, result.GetStderrRaw()), nil
	}
	file := result.GetOutputFiles()[0]
	made, err := client.Output(ctx, storage, digest.SHA256, file.GetContents(), file.GetDigest())
	return string(made) + string(printed), err
}

// outcomes are what clients have seen.
type outcomes struct {
	mu      sync.Mutex
	counts  map[string]int // how often each action had begun when its result was there
	longest time.Duration  // that a client waited for a result
}

// acknowledged takes down that a client has the result of an action, after that time.
func (c *cluster) acknowledged(name string, took time.Duration) {
	n := c.Starts()[name]
	c.done.mu.Lock()
	defer c.done.mu.Unlock()
	c.done.counts[name] = n
	c.done.longest = max(c.done.longest, took)
}

// countLate counts runs that began after the result was there. Not those of a worker that had the action, was off the
// network, and could not know: what has happened until a while after that is forgotten.
func (c *cluster) countLate(forget bool) {
	now := c.Starts()
	c.done.mu.Lock()
	defer c.done.mu.Unlock()
	for name, n := range c.done.counts {
		if now[name] > n && !forget {
			c.Logf("%s began %d times, %d of them when its result was acknowledged", name, now[name], n)
			c.late.Add(int64(now[name] - n))
		}
		c.done.counts[name] = now[name]
	}
}
