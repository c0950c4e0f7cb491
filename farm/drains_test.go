package farm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
)

func TestDrains(t *testing.T) {
	s := &Scheduler{Data: filepath.Join(t.TempDir(), "new")}
	own, _ := s.durable(nil)
	shared, _ := (&Scheduler{Lease: "main"}).durable(records.NewMemory(0))
	testDrains(t, own)
	testDrains(t, shared)
	for _, text := range []string{"", "{}", `[{}]`, `[{"host":`} {
		if err := own.Write(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if list, err := durable.LoadDrains(t.Context(), own); err == nil || !strings.Contains(err.Error(), own.String()) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
}

// testDrains writes and reads with a keeper that has nothing.
func testDrains(t *testing.T, k durable.Text) {
	t.Helper()
	if list, err := durable.LoadDrains(t.Context(), k); err != nil || len(list) != 0 {
		t.Errorf("without any: %v, %v", list, err)
	}
	want := "host=a*,slot=1 host=?"
	var drains []drain.Record
	for s := range strings.FieldsSeq(want) {
		p, err := pattern.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		drains = append(drains, drain.Record{Pattern: p, Reason: "disks", Author: "ann", Since: time.Unix(1e9, 0).UTC()})
	}
	for range 2 {
		if err := durable.KeepDrains(t.Context(), k, drains); err != nil {
			t.Fatal(err)
		}
	}
	list, err := durable.LoadDrains(t.Context(), k)
	var got []string
	for i, d := range list {
		got = append(got, d.Pattern.String())
		if d.Reason != drains[i].Reason || d.Author != drains[i].Author || !d.Since.Equal(drains[i].Since) {
			t.Errorf("read %+v, want %+v", d, drains[i])
		}
	}
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("read %v, %v", got, err)
	}
}
