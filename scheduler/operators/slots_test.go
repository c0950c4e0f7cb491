package operators

import (
	"testing"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// reported has workers by name, with their number of slots.
type reported map[string]uint32

func (r reported) Report(key string) *live.Report {
	if slots, ok := r[key]; ok {
		return &live.Report{Slots: slots}
	}
	return nil
}

func (r reported) Reports() map[*live.Report]struct{} { return nil }

// TestSlots counts the slots of workers that report their number, and of others.
func TestSlots(t *testing.T) {
	reports := reported{"a": 2, "silent": 0}
	for _, test := range []struct {
		name string
		load view.Load
		want Slots
	}{
		{"idle", view.Load{Worker: "a", Positions: 4, Serves: true}, Slots{2, 0, 2}},
		{"half", view.Load{Worker: "a", Positions: 4, Actions: 1, Serves: true}, Slots{2, 1, 1}},
		{"more actions than slots", view.Load{Worker: "a", Positions: 4, Actions: 3, Serves: true}, Slots{2, 2, 0}},
		{"drained with an action", view.Load{Worker: "a", Positions: 4, Actions: 1}, Slots{2, 1, 0}},
		{"of another make", view.Load{Worker: "b", Positions: 1, Serves: true}, Slots{1, 0, 1}},
		{"has not said so yet", view.Load{Worker: "silent", Positions: 4, Actions: 1, Serves: true}, Slots{4, 1, 3}},
	} {
		if got := SlotsOf(reports, test.load); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	if got := SlotsOf(reports, view.Load{Worker: "a", Positions: 4, Serves: true}, view.Load{Worker: "b", Positions: 1, Actions: 1}); got != (Slots{3, 1, 2}) {
		t.Errorf("together %+v", got)
	}
}
