package farm

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cgroup"
)

func TestImpossibleSlots(t *testing.T) {
	for want, w := range map[string]*Worker{
		"none of require, auto and off": {Cgroup: "on"},
		"need cgroups":                  {Cgroup: "off", SlotCPUs: 1},
		"tuning.slot_memory":            {SlotMemory: "much"},
		"tuning.slot_cpus":              {SlotCPUs: -1},
		"of memory is larger than":      {SlotMemory: "9000T"},
		"CPUs is larger than":           {SlotCPUs: 9000},
	} {
		w.Slots, w.Logger = 1, zap.NewNop()
		if _, err := w.divide(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error that says %q", w, err, want)
		}
	}
}

// TestNoSlots has settings of a worker without slots.
func TestNoSlots(t *testing.T) {
	w := &Worker{Slots: -1, Cgroup: cgroupOff, Sandbox: sandboxNone, Data: t.TempDir(), Logger: zap.NewNop()}
	if _, err := w.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--slots") {
		t.Errorf("%v, want an error that says --slots", err)
	}
}

func TestSlotsHaveWhatTheFlagsSay(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	w := &Worker{Slots: 2, SlotCPUs: 0.5, SlotMemory: "64MiB", Logger: zap.NewNop(), Data: t.TempDir()}
	limits, err := w.divide()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := w.openSlots("test-slots-"+strings.ReplaceAll(t.TempDir(), "/", "-"), limits)
	if err != nil {
		t.Fatal(err)
	}
	if plan.parent == nil {
		t.Skip("no cgroups here")
	}
	for i := range w.Slots {
		s, err := plan.slot(i, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l := s.Limits(); l.Quota != 500 || l.Memory != 64<<20 || len(l.CPUs) != 1 {
			t.Errorf("slot %d has %+v", i, l)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := plan.parent.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoCgroups has a machine whose cgroups the worker may not use: the warning has all that the
// doctor tells.
func TestNoCgroups(t *testing.T) {
	if os.Geteuid() == 0 {
		if err := syscall.Seteuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Seteuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	e := &examination{}
	w := &Worker{Slots: 1, Cgroup: cgroupAuto, Logger: zap.New(e)}
	plan, err := w.openSlots("test-not-allowed", []cgroup.Limits{{}})
	if err != nil || plan.parent != nil {
		t.Fatalf("%+v, %v", plan, err)
	}
	if len(e.findings) != 1 || e.findings[0].Why == "" || e.findings[0].Costs == "" || e.findings[0].Remedy == "" {
		t.Errorf("found %+v", e.findings)
	}
}

func TestWithoutCgroups(t *testing.T) {
	w := &Worker{Slots: 1, Cgroup: "off", Logger: zap.NewNop()}
	limits, err := w.divide()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := w.openSlots("test-never-made", limits)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := plan.slot(0, 0); s != nil || err != nil || errors.Is(err, cgroup.ErrUnavailable) {
		t.Errorf("got %v, %v", s, err)
	}
}
