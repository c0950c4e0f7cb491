package worker

import (
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestLine: each action has one line in the log, with what was prefetched for it and how long it
// waited.
func TestLine(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}),
		farmOptions{change: func(o *Options) { o.Logger = zap.New(core) }})
	for _, shell := range []string{"cat a/f*", "cat a/f*; exit 3"} { // without the name, or it would be prefetched
		f.run(t, spec{inputs: tree{"a/file": "a", "b/file": "b"}, shell: shell})
	}
	f.drain()
	f.wait(t)
	lines := logs.FilterMessage("action finished").All()
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	for i, line := range lines {
		got := line.ContextMap()
		for _, name := range []string{
			"action", "exit_code", "files", "foreseen", "late", "missed", "local", "unused", "unused_bytes", "stall",
			"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report",
		} {
			if _, ok := got[name]; !ok {
				t.Errorf("line %d has no %q: %v", i, name, got)
			}
		}
		if got["outcome"] != []string{"ok", "exit_code"}[i] || got[names.WorkerField] != names.Pairs(f.worker.opts.ID) {
			t.Errorf("line %d: %v", i, got)
		}
	}
	for i, want := range []struct {
		name string
		rate any
	}{{"missed", 0.0}, {"local", nil}} {
		if got := lines[i].ContextMap(); got["files"] != int64(1) || got[want.name] != int64(1) || got["hit_rate"] != want.rate {
			t.Errorf("line %d: %v", i, got)
		}
	}
}

// TestSilenceIsLoggedOnce has two positions whose scheduler is away, and refuses them when it is
// back.
func TestSilenceIsLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	w := &Worker{}
	positions := []*position{{w: w, log: zap.New(core)}, {w: w, log: zap.New(core)}}
	away, refused := status.Error(codes.Unavailable, "away"), status.Error(codes.PermissionDenied, "refused")
	for _, err := range []error{nil, away, away, refused, nil, nil} {
		for _, p := range positions {
			p.reportConnection(err)
		}
	}
	var got []string
	for _, line := range logs.All() {
		got = append(got, line.Message)
	}
	const silent = "scheduler does not answer; retrying"
	if want := []string{silent, silent, "scheduler answers again"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}
