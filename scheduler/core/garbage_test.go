package core

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// The maximum garbage of a cycle, and the maximum memory of a queued operation. With many
// operations, these decide how fast decisions are. Raise a limit only if the benchmark has shown
// the cost.
const (
	maxCycleObjects = 7.5
	maxCycleBytes   = 1600
	maxTaskPointers = 32
	maxWorkerBytes  = 416
	maxQueuedBytes  = 720
)

// A littleFarm is a State whose workers are all busy, with operations that have been made before it
// is measured.
type littleFarm struct {
	t       *testing.T
	state   *State
	now     time.Time
	submits []event.Event
	detach  []event.Event
	report  event.Report
	call    uint64
	running []digest.Digest
	keys    []string
	ids     []map[string]string
}

func newLittleFarm(t *testing.T, workers, operations int) *littleFarm {
	state, err := NewState(tuning.Config{MaxCompleted: 100, MaxQueued: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	f := &littleFarm{t: t, state: state, now: time.Unix(1_800_000_000, 0), running: make([]digest.Digest, workers)}
	for i := range workers {
		f.ids = append(f.ids, map[string]string{"host": fmt.Sprint(i)})
		f.keys = append(f.keys, fmt.Sprint("host=", i))
		f.calls(i, event.Idle, digest.Digest{})
	}
	for i := range operations {
		op := &request.Operation{
			Name: fmt.Sprint("operation-", i), Instance: fmt.Sprint("team-", i%5), Digest: digest.Of(digest.SHA256, fmt.Append(nil, i)),
			Action:  &repb.Action{},
			Request: request.Metadata{ToolInvocation: fmt.Sprint("invocation-", i%50), Correlated: fmt.Sprint("build-", i%10)},
		}
		f.submits = append(f.submits, event.Submit{Operation: op})
		f.detach = append(f.detach, event.Detach{Name: op.Name})
	}
	return f
}

// submit submits the next n operations.
func (f *littleFarm) submit(n int) {
	for _, e := range f.submits[:n] {
		f.carryOut(f.state.Step(f.now, e))
	}
	f.submits = f.submits[n:]
}

// calls makes a call of a worker, which may get an action.
func (f *littleFarm) calls(worker int, doing event.Doing, action digest.Digest) {
	f.call++
	f.report = event.Report{
		Call: f.call*uint64(len(f.running)) + uint64(worker), Worker: f.keys[worker], ID: f.ids[worker], SizeClass: 1,
		Doing: doing, Action: action, PreferIdle: doing == event.Completed,
	}
	if doing == event.Completed {
		f.report.Response = done
	}
	f.carryOut(f.state.Step(f.now, &f.report))
}

var done = &repb.ExecuteResponse{Result: &repb.ActionResult{}}

func (f *littleFarm) carryOut(out event.Out) {
	if out.Err != nil {
		f.t.Fatal(out.Err)
	}
	for _, r := range out.Replies {
		if r.Do == event.Execute {
			f.running[r.Call%uint64(len(f.running))] = r.Run.Digest
		}
	}
}

// cycle submits an operation, ends a worker's action and gives the worker the next one.
func (f *littleFarm) cycle(worker int) {
	f.now = f.now.Add(time.Millisecond)
	f.submit(1)
	f.calls(worker, event.Completed, f.running[worker])
	f.state.Step(f.now, f.detach[0])
	f.detach = f.detach[1:]
	f.calls(worker, event.Idle, digest.Digest{})
}

// spent returns how many objects and bytes a call makes.
func spent(do func()) (objects, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}

// TestCycleMakesLittleGarbage measures the allocations of a cycle in the core: a submission, the
// end of an action, and a decision. The number of operations stays the same, so all of this becomes
// garbage.
func TestCycleMakesLittleGarbage(t *testing.T) {
	const workers, cycles = 50, 4000
	f := newLittleFarm(t, workers, workers+1000+2*cycles)
	f.submit(workers + 1000)
	run := func() {
		for i := range cycles {
			f.cycle(i % workers)
		}
	}
	run() // kept operations fill up, lists get their sizes
	objects, bytes := spent(run)
	t.Logf("%.1f objects, %.0f bytes", objects/cycles, bytes/cycles)
	if objects > maxCycleObjects*cycles || bytes > maxCycleBytes*cycles {
		t.Errorf("a cycle makes %.1f objects of %.0f bytes, more than %v of %d", objects/cycles, bytes/cycles, maxCycleObjects, maxCycleBytes)
	}
}

// TestQueuedOperationIsSmall measures what the core holds for each operation that waits.
func TestQueuedOperationIsSmall(t *testing.T) {
	const queued = 20_000
	f := newLittleFarm(t, 1, 1+queued)
	f.submit(1)
	f.submit(queued)
	live := liveBytes(f)
	f.state = nil
	live -= liveBytes(f)
	t.Logf("%.0f bytes", live/queued)
	if live > maxQueuedBytes*queued {
		t.Errorf("a queued operation has %.0f bytes, more than %d", live/queued, maxQueuedBytes)
	}
}

// liveBytes is the size of the live heap; f stays alive.
func liveBytes(f *littleFarm) float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(f)
	return float64(m.HeapAlloc)
}

// TestTaskHasFewPointers counts the words of a task that the garbage collector follows.
func TestTaskHasFewPointers(t *testing.T) {
	if n := pointers(reflect.TypeFor[task]()); n > maxTaskPointers {
		t.Errorf("a task has %d pointers, more than %d", n, maxTaskPointers)
	}
	if n := reflect.TypeFor[worker]().Size(); n > maxWorkerBytes {
		t.Errorf("a worker has %d bytes, more than %d", n, maxWorkerBytes)
	}
}

// pointers counts the pointers in a value of a type.
func pointers(of reflect.Type) (n int) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.String, reflect.Slice:
		return 1
	case reflect.Interface:
		return 2
	case reflect.Array:
		return of.Len() * pointers(of.Elem())
	case reflect.Struct:
		for i := range of.NumField() {
			n += pointers(of.Field(i).Type)
		}
	}
	return n
}
