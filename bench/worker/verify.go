package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/scrub"
)

// The rows of actions that compile: with a verified store; and, as after a start of the machine,
// with a store that has all blobs but has not verified them, and an empty page cache.
const (
	rowCompile      = "headers_ms"
	rowCompileCold  = "headers_cold_ms"
	rowVerifyDelay  = "verify_delay_ms"
	rowVerifyDelay9 = "verify_delay_ms_p99"

	headersRead  = 500 // by each action
	headersNew   = 20  // of these, headers that no earlier action has read
	headerBytes  = 8 << 10
	headerScript = "printf '#include \"%s\"\\n' *.h >unit.c && cc -c unit.c -o out"
)

// A verifySample has the measurements of one run of the actions.
type verifySample struct{ ms, delay []float64 }

func verifyNames() []string {
	return []string{rowCompile, rowCompileCold, rowVerifyDelay, rowVerifyDelay9}
}

// measureVerify has one worker run all actions three times, with a restart before each. In the
// first run it fetches the blobs. Before the second run the verification times and the page cache
// are dropped. In the third run the blobs are verified and in the page cache.
func (b *workerBench) measureVerify(ctx context.Context) (err error) {
	if !b.o.Wants(verifyNames()...) {
		return nil
	}
	actions, err := b.storeHeaders(ctx)
	if err != nil {
		return err
	}
	f := b.farm
	data := filepath.Join(f.Dir, "verify")
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	for _, s := range []*verifySample{{}, &b.cold, &b.warm} {
		if s == &b.cold {
			if err := os.Remove(filepath.Join(data, "cas", "verified")); err != nil {
				return fmt.Errorf("forget what is verified: %w", err)
			}
			if err := report.DropCache(filepath.Join(data, "cas", "sha256")); err != nil {
				return fmt.Errorf("drop the page cache: %w", err)
			}
		}
		f.Starts++
		address := "grpc://" + f.Address
		w := &farm.Worker{
			Scheduler: address, Storage: address, ID: map[string]string{"bench": fmt.Sprint(f.Starts)},
			Data: data, CacheSize: "8G", Slots: 1, SizeClass: 1, ReportWidth: 1,
			Sandbox: "namespaces", Cgroup: "auto", Prefetch: true, PrefetchMentions: true, Disk: scrub.Disk{SpreadFolders: true}, CommandsCome: true, Logger: f.Log,
		}
		if err := f.Serve(ctx, func() error { return b.loadHeaders(ctx, actions, s) }, w); err != nil {
			return err
		}
		report.Progress("headers: %.2f ms, delayed by %.3f ms, p99 %.3f ms", report.Median(s.ms), report.Median(s.delay), p99(s.delay))
	}
	return nil
}

// storeHeaders uploads actions. Each reads some headers of its own, and some that earlier actions
// have read.
func (b *workerBench) storeHeaders(ctx context.Context) ([]digest.Digest, error) {
	var u testbed.Upload
	var headers []*repb.FileNode
	for i := range b.o.headers*headersNew + headersRead {
		headers = append(headers, &repb.FileNode{Name: fmt.Sprintf("%08d.h", i), Digest: u.Bytes(header(i)).Proto()})
	}
	command, err := u.Message(testbed.NewCommand([]string{"/bin/sh", "-c", headerScript}, "out", "PATH=/usr/bin:/bin"))
	if err != nil {
		return nil, err
	}
	var actions []digest.Digest
	for i := range b.o.headers {
		at := i * headersNew
		root, err := u.Message(&repb.Directory{Files: headers[at : at+headersRead]})
		if err != nil {
			return nil, err
		}
		action, err := u.Action(command, root)
		if err != nil {
			return nil, err
		}
		actions = append(actions, action)
	}
	return actions, u.To(ctx, b.farm.Storage)
}

// header returns the text of a header. Half of it is comments, as in real headers.
func header(n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#pragma once\n")
	for i := 0; b.Len() < headerBytes/2; i++ {
		fmt.Fprintf(&b, "struct s%d_%d { int a; const char *b; };\nint f%d_%d(struct s%d_%d *, unsigned long);\n", n, i, n, i, n, i)
	}
	b.WriteString("/*\n")
	for b.Len() < headerBytes {
		b.WriteString("What these are for, and whom the memory belongs to that they return.\n")
	}
	return append(b.Bytes()[:headerBytes-3], "*/\n"...)
}

// loadHeaders executes the actions one at a time. Any delay of a response after its outputs are
// stored is due to verification.
func (b *workerBench) loadHeaders(ctx context.Context, actions []digest.Digest, s *verifySample) error {
	for i, action := range actions {
		asked := time.Now()
		stream, err := repb.NewExecutionClient(b.farm.Conn).Execute(ctx,
			&repb.ExecuteRequest{ActionDigest: action.Proto(), SkipCacheLookup: true})
		if err != nil {
			return fmt.Errorf("execute action %d: %w", i, err)
		}
		answer, err := load.AwaitAnswer(stream)
		if err != nil {
			return fmt.Errorf("execute action %d: %w", i, err)
		}
		if code := answer.GetResult().GetExitCode(); code != 0 {
			return fmt.Errorf("action %d: exit code %d: %s", i, code, answer.GetResult().GetStderrRaw())
		}
		m := answer.GetResult().GetExecutionMetadata()
		s.ms = append(s.ms, report.Milliseconds(time.Since(asked)))
		s.delay = append(s.delay, report.Milliseconds(
			m.GetWorkerCompletedTimestamp().AsTime().Sub(m.GetOutputUploadCompletedTimestamp().AsTime())))
	}
	return nil
}

// verifyRows returns the rows of measureVerify.
func (b *workerBench) verifyRows() (rows []report.Row) {
	if len(b.warm.ms) == 0 {
		return nil
	}
	note := fmt.Sprintf("%d actions, each compiles a file with %d headers of %d KiB", len(b.warm.ms), headersRead, headerBytes>>10)
	cold := fmt.Sprintf("%s, %d of them not verified yet and on the disk", note, headersNew)
	add := func(name string, value float64, note string) {
		if b.o.Wants(name) {
			r := report.NewRow(name, value, "ms")
			r.Note = note
			rows = append(rows, r)
		}
	}
	add(rowCompile, report.Median(b.warm.ms), note+", all verified")
	add(rowCompileCold, report.Median(b.cold.ms), cold)
	add(rowVerifyDelay, report.Median(b.cold.delay), fmt.Sprintf("%s; %.3f ms if all are", cold, report.Median(b.warm.delay)))
	add(rowVerifyDelay9, p99(b.cold.delay), fmt.Sprintf("%s; %.3f ms if all are", cold, p99(b.warm.delay)))
	return rows
}

func p99(values []float64) float64 {
	return report.Quantile(slices.Sorted(slices.Values(values)), 0.99)
}
