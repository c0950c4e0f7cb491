package core

import (
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// TestDeclaredSizes checks which declarations are refused, and which classes the choice of a class
// gets.
func TestDeclaredSizes(t *testing.T) {
	linux := map[string]string{"OS": "linux", "arch": "arm"}
	for want, list := range map[string][]tuning.Sizes{
		"declared twice": {{Platform: linux, Classes: []uint32{1}}, {Platform: linux, Classes: []uint32{2}}},
		"no classes":     {{Platform: linux}},
		`name "acme/"`:   {{Prefix: "acme/", Platform: linux, Classes: []uint32{1}}},
		"startup is neg": {{Classes: []uint32{1}, Startup: -1}},
	} {
		if _, err := NewState(tuning.Config{Sizes: list}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", list, err, want)
		}
	}
	s := must(NewState(tuning.Config{Sizes: []tuning.Sizes{
		{Platform: linux, Classes: []uint32{8, 1}, Startup: 3 * time.Minute},
		{Prefix: "x", Platform: linux, Classes: []uint32{2}},
	}}))
	platform := tuning.Sizes{Platform: linux}.WorkerPlatform()
	s.Step(epoch, &event.Report{Worker: "w", Platform: platform, SizeClass: 4, Doing: event.Idle})
	got := s.View().SizeClasses(&request.Operation{Instance: "main", Platform: platform})
	if want := []view.SizeClass{
		{Size: 1, Wait: 3 * time.Minute},
		{Size: 4},
		{Size: 8, Wait: 3 * time.Minute},
	}; len(got) != 3 ||
		got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("classes %+v, want %+v", got, want)
	}
}

// TestDeclaredKindsAreBounded has machines of many kinds come and go: the pools of some stay.
func TestDeclaredKindsAreBounded(t *testing.T) {
	c := newChronicle(t, tuning.Config{Sizes: []tuning.Sizes{{Classes: []uint32{1, 2}}}})
	for i := range 3 * mostKinds {
		c.tell("0s sync w%d idle class=1 implied=OSFamily=system%d", i, i)
		c.tell("0s sync w%d idle class=1 drain implied=OSFamily=system%d", i, i)
	}
	c.tell("100s run")
	if v := c.state.View(); v.Counts().Draining > 0 || len(v.QueueCounts()) != 2*mostKinds {
		t.Errorf("%d queues are left: %+v", len(v.QueueCounts()), v.Counts())
	}
}
