package live

import (
	"errors"
	"testing"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// TestTwinShowsNothing has a second process call as an existing worker. It must take neither its
// place nor the place of its report. The same process may call again. Another process may call when
// the first has gone, or if it is not known which of the two calls.
func TestTwinShowsNothing(t *testing.T) {
	l := NewRegistry()
	id := map[string]string{"id": "w"}
	key := names.WorkerKey("", id)
	hello := &live.ServeRequest{Workers: []*live.Identity{{WorkerId: id}}}
	report := func(slots uint32) *live.Report { return &live.Report{Worker: hello.GetWorkers()[0], Slots: slots} }
	first, leave, err := l.show(hello, "first")
	if err != nil || !l.tell(report(4), "first") {
		t.Fatal(err)
	}
	if _, _, err := l.show(hello, "second"); !errors.Is(err, event.ErrTwin) {
		t.Errorf("a second process: %v", err)
	}
	if l.tell(report(1), "second") || l.Report(key).GetSlots() != 4 {
		t.Errorf("the report is that of the second process: %v", l.Report(key))
	}
	if l.Wake(key); len(first.asks) != 1 {
		t.Error("the first process is not told to call")
	}
	_, leaveAgain, err := l.show(hello, "first")
	if err != nil {
		t.Fatalf("the same process once more: %v", err)
	}
	leave()
	if _, ok := l.workers[key]; !ok {
		t.Fatal("the end of the older call ends the newer one")
	}
	leaveAgain()
	_, leave, err = l.show(hello, "second")
	if err != nil || !l.tell(report(1), "second") {
		t.Fatalf("the next process: %v", err)
	}
	defer leave()
	_, leaveUnknown, err := l.show(hello, "")
	if err != nil || !l.tell(report(2), "") {
		t.Fatalf("one that does not say which it is: %v", err)
	}
	leaveUnknown()
}
