package history

import "testing"

// TestRecorded asks which of many operations have ended, in files and in what waits for them.
func TestRecorded(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 64 << 10})
	fill(t, s, 0, 300)
	s.Flush()
	fill(t, s, 300, 400)
	var asked []string
	for i := range 800 {
		asked = append(asked, recordOf(i).GetOperation())
	}
	recorded := s.Recorded(asked, recordOf(100).GetEnded().AsTime())
	for i, name := range asked {
		if want := i >= 100 && i < 400; recorded[name] != want {
			t.Errorf("record %d: %v, want %v", i, recorded[name], want)
		}
	}
}
