package worker

import (
	"errors"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestResultsGoWithReports: the worker leaves it to the scheduler to write results, if both agree.
// A result that is for no action cache goes nowhere.
func TestResultsGoWithReports(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		why          string
		takes, gives bool
		shell        string
		given        []string
		written      bool // by the worker
	}{
		{why: "both", takes: true, gives: true, shell: "echo a > out", given: []string{"1", "granted"}},
		{why: "the scheduler alone", takes: true, shell: "echo a > out", written: true},
		{why: "the worker alone", gives: true, shell: "echo a > out", written: true},
		{why: "a failure", takes: true, gives: true, shell: "exit 3"},
	} {
		f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) { o.ResultsGo = test.gives }})
		f.scheduler.takes = test.takes
		j := f.job(t, spec{shell: test.shell, paths: []string{"out"}})
		f.scheduler.work <- j
		j.result(t)
		f.scheduler.mu.Lock()
		given := slices.Clone(f.scheduler.given)
		f.scheduler.mu.Unlock()
		if !slices.Equal(given, test.given) {
			t.Errorf("%s: the scheduler got %q, want %q", test.why, given, test.given)
		}
		_, err := f.actions.Get(t.Context(), "", j.digest)
		if written := err == nil; written != test.written || !written && !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("%s: in the action cache: %t, %v", test.why, written, err)
		}
	}
}
