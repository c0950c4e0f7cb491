package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// A peak that can be reset tells of every stretch; another one only of new records. The
// file is a fake: the write that is to reset it changes its first digit.
func TestPeakOfMemory(t *testing.T) {
	type stretch struct {
		peak string // that the kernel writes meanwhile
		want int64
	}
	for name, c := range map[string]struct {
		readOnly  bool
		stretches []stretch
	}{
		"resets": {false, []stretch{{"500", 500}, {"950", 950}, {"950", 950}, {"12", 12}}},
		// As its mode says; it is found out at the first attempt.
		"only says so": {true, []stretch{{"900", 0}, {"950", 950}, {"950", 0}, {"951", 951}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			peak, current := filepath.Join(dir, "peak"), filepath.Join(dir, "current")
			write(t, peak, "900")
			write(t, current, "100")
			m := &Meter{buffer: make([]byte, 4096), descriptors: map[*os.File]int{}}
			t.Cleanup(func() { _ = m.Close() })
			if err := m.openPeak(peak, current); err != nil {
				t.Fatal(err)
			}
			if c.readOnly {
				var err error
				if m.peak, err = os.Open(peak); err != nil {
					t.Fatal(err)
				}
				defer m.peak.Close()
			}
			for i, s := range c.stretches {
				if err := m.Begin(); err != nil {
					t.Fatal(err)
				}
				write(t, peak, s.peak)
				if u, err := m.End(); err != nil || u.MemoryPeak != s.want || u.MemoryBefore != 100 {
					t.Errorf("stretch %d: %+v, %v; want a peak of %d", i, u, err, s.want)
				}
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
