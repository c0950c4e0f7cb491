package tuning

import (
	"reflect"
	"testing"
)

// TestTuningIsBounded has each time and number that operators may set refuse what makes no sense,
// before the scheduler starts.
func TestTuningIsBounded(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		unit := f.Tag.Get("unit")
		if f.Tag.Get("tuning") == "" || unit != "TIME" && unit != "NUMBER" {
			continue
		}
		if f.Tag.Get("min") == "" && f.Tag.Get("above") == "" {
			t.Errorf("%s may be negative", f.Name)
		}
	}
}
