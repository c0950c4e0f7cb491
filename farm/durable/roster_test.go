package durable

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/records"
)

// TestRoster stores workers in a folder, as an earlier scheduler would have.
func TestRoster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "durable")
	r := Roster[uint64]{Store: records.NewFolder(dir)}
	load := func() []uint64 {
		t.Helper()
		known, err := r.Load(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	if known := load(); known != nil {
		t.Errorf("a new folder, of a farm that was there before: %v", known)
	}
	if known, err := r.Load(t.Context(), true); known == nil || len(known) > 0 || err != nil {
		t.Errorf("a new farm: %v, %v", known, err)
	}
	want := []uint64{1, 1 << 63}
	if err := r.Keep(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if known := load(); !slices.Equal(known, want) {
		t.Errorf("%v, want %v", known, want)
	}
	if err := r.record().Write(t.Context(), []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if known := load(); known != nil {
		t.Errorf("what makes no sense: %v", known)
	}
	r.Lease = "main"
	if known := load(); known != nil {
		t.Errorf("the first of a lease: %v", known)
	}
}
