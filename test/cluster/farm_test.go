package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

const callTimeout = 5 * time.Second // of a call of the scheduler

// A farm is the farm as clients and operators reach it, whatever it consists of.
type farm struct {
	*programs.Test
	calls *programs.SplitConn
	admin admin.SchedulerClient

	right, wrong, failed atomic.Int64 // actions
	again                atomic.Int64 // calls of clients that were tried again
	done                 outcomes
}

func named(workers string) *admin.Pattern {
	return &admin.Pattern{Attributes: map[string]string{"name": workers}}
}

// expect waits until what holds, or fails the test if ctx or the time for one wait ends before.
func (f *farm) expect(ctx context.Context, what string, holds func() bool) bool {
	f.Helper()
	began := time.Now()
	if until(ctx, programs.Timeout, holds) {
		return true
	}
	f.Errorf("not in %s: %s", time.Since(began).Round(time.Second), what)
	return false
}

// drain drains workers.
func (f *farm) drain(workers *admin.Pattern) {
	f.Helper()
	f.expect(f.Context(), "workers are drained", func() bool {
		ctx, cancel := context.WithTimeout(f.Context(), callTimeout)
		defer cancel()
		_, err := f.admin.Drain(ctx, &admin.DrainRequest{Pattern: workers})
		return err == nil
	})
}

// undrain removes the drain, even through a scheduler that has replaced the one that was told.
func (f *farm) undrain(workers *admin.Pattern) {
	f.Helper()
	f.expect(f.Context(), "workers are no longer drained", func() bool {
		ctx, cancel := context.WithTimeout(f.Context(), callTimeout)
		defer cancel()
		_, err := f.admin.Undrain(ctx, &admin.UndrainRequest{Pattern: workers})
		return err == nil || status.Code(err) == codes.NotFound
	})
}

// operation returns the operation of a target, nil if there is none that is not done.
func (f *farm) operation(ctx context.Context, target string) *admin.Operation {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := f.admin.ListOperations(ctx, &admin.ListOperationsRequest{Pattern: &admin.Pattern{Attributes: map[string]string{"target": target}}})
	if err != nil || len(list.GetOperations()) == 0 {
		return nil
	}
	return list.GetOperations()[0]
}

// work is what an action does: it notes its start in "starts", runs middle, and makes an expected
// output from its input.
type work struct {
	name, middle, instance string
}

func (w work) input() string { return fmt.Sprintf("this is %s\n", w.name) }
func (w work) want() string  { return strings.ToUpper(w.input() + w.input()) }

// runAction runs an action, as often as the farm asks for that, and reports whether its result was
// right.
func (f *farm) runAction(ctx context.Context, w work) bool {
	began := time.Now()
	f.Write(filepath.Join("in", w.name, "in"), w.input())
	for ; ctx.Err() == nil; f.again.Add(1) {
		got, err := f.execute(ctx, w)
		if err != nil { // a build tool would try again
			f.Logf("%s: %v", w.name, err)
			_ = pause.For(ctx, 100*time.Millisecond)
			continue
		}
		f.acknowledged(w.name, time.Since(began))
		if got != w.want() {
			f.Errorf("%s made %q", w.name, got)
			f.wrong.Add(1)
		}
		return got == w.want()
	}
	f.failed.Add(1)
	return false
}

// execute runs an action once and returns its output file and its standard output.
func (f *farm) execute(ctx context.Context, w work) (string, error) {
	inputs, err := client.Scan(ctx, digest.SHA256, []client.Mount{{Dir: filepath.Join(f.Dir, "in", w.name)}}, nil)
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("echo %s >> %s/starts; %s; tr a-z A-Z < in > out && cat out", w.name, f.Dir, w.middle)
	outcome, err := client.Execute(ctx, f.calls, client.Request{
		Inputs: inputs, Command: client.NewCommand([]string{"/bin/sh", "-c", script}, []string{"out"}, "", nil, nil),
		Metadata: &repb.RequestMetadata{TargetId: w.name}, Instance: w.instance,
	})
	if err == nil {
		err = outcome.Status
	}
	if err != nil {
		return "", err
	}
	storage, result := casclient.New(f.calls, casclient.Options{}), outcome.Result
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

// outcomes are the results that clients have received.
type outcomes struct {
	mu      sync.Mutex
	counts  map[string]int // how often each action had begun when its result arrived
	longest time.Duration  // that a client waited for a result
}

// acknowledged takes down that a client has the result of an action, after that time.
func (f *farm) acknowledged(name string, took time.Duration) {
	n := f.Starts()[name]
	f.done.mu.Lock()
	defer f.done.mu.Unlock()
	f.done.counts[name] = n
	f.done.longest = max(f.done.longest, took)
}

// until polls until what holds; false: ctx or the time, if any, ended before.
func until(ctx context.Context, limit time.Duration, holds func() bool) bool {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for !holds() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
