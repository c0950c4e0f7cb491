package worker

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
)

// newPipelineFarm is a farm whose worker has these widths.
func newPipelineFarm(t *testing.T, fetch, slots, report int) *farm {
	t.Helper()
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		slots: slots, change: func(o *Options) { o.FetchWidth, o.ReportWidth = fetch, report },
	})
}

// gated is an action that ends when its gate is opened.
func gated(t *testing.T, name string) (s spec, open func()) {
	t.Helper()
	gate := newGate(t)
	s = spec{shell: untilOpen + "; echo " + name + " > out", paths: []string{"out"}}
	s.env = map[string]string{"GATE": gate}
	open = func() {
		t.Helper()
		check(t, os.WriteFile(gate, nil, 0o600))
	}
	return s, open
}

// TestOutputsAreStoredWhileTheNextRuns has one slot and storage that takes nothing
// until the second command has run.
func TestOutputsAreStoredWhileTheNextRuns(t *testing.T) {
	f := newPipelineFarm(t, 0, 1, 1)
	release := f.reads.hold(uploads)
	defer release()
	first := f.start(t, spec{shell: "echo 1 > out", paths: []string{"out"}})
	first.reaches(t, "uploading")
	second, open := gated(t, "second")
	j := f.start(t, second)
	j.reaches(t, "running")
	open()
	release()
	assertOK(t, first.result(t))
	assertOK(t, j.result(t))
}

// TestReportHoldsUpExecute fills report, then the slot; then nothing is accepted.
func TestReportHoldsUpExecute(t *testing.T) {
	f := newPipelineFarm(t, 0, 1, 1)
	release := f.reads.hold(uploads)
	defer release()
	first := f.start(t, spec{shell: "echo 1 > out", paths: []string{"out"}})
	first.reaches(t, "uploading")
	second := f.start(t, spec{shell: "echo 2 > out", paths: []string{"out"}})
	second.reaches(t, "uploading") // in its slot: it has no place to report from
	f.assertTakesNothing(t)
	release()
	assertOK(t, first.result(t))
	assertOK(t, second.result(t))
	f.assertGood(t)
}

// TestInputsAreFetchedBeforeASlotIsFree has as many actions accepted as there are
// places, the later ones with their inputs, and not one more.
func TestInputsAreFetchedBeforeASlotIsFree(t *testing.T) {
	f := newPipelineFarm(t, 1, 1, 0)
	running, open := gated(t, "first")
	first := f.start(t, running)
	first.reaches(t, "running")
	second := f.start(t, spec{inputs: tree{"in": "content"}, shell: "cat in"})
	second.reaches(t, "fetching")
	f.assertTakesNothing(t)
	open()
	assertOK(t, first.result(t))
	r := second.result(t)
	assertOK(t, r)
	m := r.GetResult().GetExecutionMetadata()
	if waited := m.GetExecutionStartTimestamp().AsTime().Sub(m.GetInputFetchCompletedTimestamp().AsTime()); waited <= 0 {
		t.Errorf("waiting for the slot took %s by the metadata", waited)
	}
}

func TestCancelWhileWaitingForASlot(t *testing.T) {
	f := newPipelineFarm(t, 1, 1, 0)
	running, open := gated(t, "first")
	first := f.start(t, running)
	first.reaches(t, "running")
	second := f.start(t, spec{shell: "echo never"})
	second.reaches(t, "fetching")
	f.scheduler.withdraw(second)
	third := f.start(t, spec{shell: "echo third"}) // in the place that the second had
	open()
	assertOK(t, first.result(t))
	assertOK(t, third.result(t))
	f.assertNotCached(t, second)
}

// TestSuccessorHasTheSlot has one action give way to another while a third one waits for its slot
// with its inputs fetched. The third one must not get the slot.
func TestSuccessorHasTheSlot(t *testing.T) {
	f := newPipelineFarm(t, 1, 1, 0)
	victim, _ := gated(t, "victim")
	first := f.start(t, victim)
	first.reaches(t, "running")
	waiting := f.start(t, spec{shell: "echo waiting"})
	waiting.reaches(t, "fetching")
	gentle, open := gated(t, "successor")
	successor := f.job(t, gentle)
	f.scheduler.replace(first, successor)
	successor.reaches(t, "running")
	select {
	case r := <-waiting.completed:
		t.Errorf("what waited ran first: %v", r)
	default:
	}
	open()
	assertOK(t, successor.result(t))
	assertOK(t, waiting.result(t))
	f.assertNotCached(t, first)
	f.assertGood(t)
}

// TestSameActionTwice has a scheduler that gives an action away while it still runs.
func TestSameActionTwice(t *testing.T) {
	f := newPipelineFarm(t, 0, 2, 0)
	gate := newGate(t)
	// The script fails if another run of it exists.
	s := spec{
		shell:      `mkdir "$MARK" || exit 3; while [ ! -e "$GATE" ]; do sleep 0.02; done; rmdir "$MARK"`,
		env:        map[string]string{"GATE": gate, "MARK": gate + "-running"},
		doNotCache: true,
	}
	first := f.job(t, s)
	var err error
	s.command, err = digest.FromProto(digest.SHA256, first.desired.GetAction().GetCommandDigest())
	check(t, err)
	second := f.job(t, s)
	if second.digest != first.digest {
		t.Fatal("these are two actions")
	}
	f.scheduler.work <- first
	first.reaches(t, "running")
	f.scheduler.work <- second
	second.reaches(t, "started")
	check(t, os.WriteFile(gate, nil, 0o600))
	assertOK(t, first.result(t))
	assertOK(t, second.result(t))
}

// TestSameActionOfAnotherInstanceName has one action give way to the same action of another
// instance name. It must run again, because its client may not see the outputs of the first one.
func TestSameActionOfAnotherInstanceName(t *testing.T) {
	f := newPipelineFarm(t, 0, 1, 0)
	one, open := gated(t, "one")
	first, second := f.job(t, one), f.job(t, one)
	if second.digest != first.digest {
		t.Fatal("these are two actions")
	}
	first.desired.InstanceNameSuffix, second.desired.InstanceNameSuffix = "x", "y"
	f.scheduler.work <- first
	first.reaches(t, "running")
	f.scheduler.replace(first, second)
	second.reaches(t, "running")
	f.scheduler.heard(t, "the other one", func(*remoteworker.SynchronizeRequest) bool {
		return slices.Equal(f.scheduler.suffixes, []string{"x", "y"})
	})
	open()
	assertOK(t, second.result(t))
}

// TestOtherPlatform sends an action that is not for this worker.
func TestOtherPlatform(t *testing.T) {
	linux := map[string]string{"OSFamily": "linux"}
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) {
		o.Require = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OSFamily", Value: "linux"}}}
	}})
	assertOK(t, f.run(t, spec{shell: "exit 0", platform: linux}))
	j := f.start(t, spec{shell: "echo never", platform: map[string]string{"OSFamily": "plan9"}})
	j.reaches(t, "started")
	assertOK(t, f.run(t, spec{shell: "exit 0; exit 1", platform: linux}))
	if len(j.completed) != 0 {
		t.Error("the action was reported as done")
	}
	f.assertNotCached(t, j)
}

// TestPositionsOfAPipeline: a position for each place, and full ones say so.
func TestPositionsOfAPipeline(t *testing.T) {
	f := newPipelineFarm(t, 1, 2, 1)
	running, open := gated(t, "all")
	var jobs []*job
	for i := range 3 {
		s := running
		s.env = map[string]string{"GATE": running.env["GATE"], "N": strconv.Itoa(i)}
		jobs = append(jobs, f.start(t, s))
	}
	f.scheduler.heard(t, "a position without a place", func(r *remoteworker.SynchronizeRequest) bool {
		return r.GetPreferBeingIdle() && r.GetCurrentState().GetIdle() != nil
	})
	open()
	for _, j := range jobs {
		assertOK(t, j.result(t))
	}
	f.drain()
	f.wait(t)
}

// assertTakesNothing fails the test if the worker accepts another action.
func (f *farm) assertTakesNothing(t *testing.T) {
	t.Helper()
	select {
	case f.scheduler.work <- f.job(t, spec{shell: "echo too many"}):
		t.Fatal("the worker took more than its pipeline holds")
	case <-time.After(10 * fakeInterval):
	}
}

func TestNegativeWidth(t *testing.T) {
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
	check(t, err)
	defer store.Close()
	o := Options{
		Launchers: make([]*runner.Launcher, 1), ID: map[string]string{"a": "b"}, WorkDir: t.TempDir(),
		Scheduler: &leaseClient{}, Store: store, Storage: &casclient.Client{}, Roots: &vfs.FS{},
	}
	for _, width := range []*int{&o.FetchWidth, &o.ReportWidth} {
		*width = -1
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), "negative width") {
			t.Errorf("a negative width: %v", err)
		}
		*width = 0
	}
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}
