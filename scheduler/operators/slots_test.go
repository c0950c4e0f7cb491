package operators

import (
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// TestSlots counts the slots of workers that report their number, and of others.
func TestSlots(t *testing.T) {
	for _, test := range []struct {
		name string
		load view.Load
		want Slots
	}{
		{"idle", view.Load{Slots: 2, Positions: 4, Serves: true}, Slots{2, 0, 2}},
		{"half", view.Load{Slots: 2, Positions: 4, Actions: 1, Serves: true}, Slots{2, 1, 1}},
		{"more actions than slots", view.Load{Slots: 2, Positions: 4, Actions: 3, Serves: true}, Slots{2, 2, 0}},
		{"drained with an action", view.Load{Slots: 2, Positions: 4, Actions: 1}, Slots{2, 1, 0}},
		{"of another make", view.Load{Positions: 1, Serves: true}, Slots{1, 0, 1}},
		{"not all of its positions are here yet", view.Load{Slots: 4, Positions: 1, Actions: 1, Serves: true}, Slots{4, 1, 3}},
	} {
		if got := SlotsOf(test.load); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	if got := SlotsOf(view.Load{Slots: 2, Positions: 4, Serves: true}, view.Load{Positions: 1, Actions: 1}); got != (Slots{3, 1, 2}) {
		t.Errorf("together %+v", got)
	}
}
