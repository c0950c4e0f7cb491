package prefetch

import (
	"math"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestSumsOfClaims: sums of sizes that clients claim end at the largest number.
func TestSumsOfClaims(t *testing.T) {
	d, err := digest.FromHash(digest.SHA256, [digest.HashSize]byte{}, digest.MaxSizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	var sum Amount
	for range 1 << 15 {
		sum.add(d)
	}
	if want := (Amount{1 << 15, math.MaxInt64}); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
}

func TestFigures(t *testing.T) {
	blob := func(size int) digest.Digest { return digest.Of(digest.SHA256, make([]byte, size)) }
	var none Tally
	if f := none.Figures(nil); f != (Figures{}) {
		t.Errorf("nothing was opened: %+v", f)
	}
	var tally Tally
	tally.Opened(digest.SHA256.Empty(), cas.Local)
	tally.Opened(blob(1), cas.Local)
	tally.Opened(blob(2), cas.Absent)
	tally.Opened(blob(2), cas.Local) // again, or at another path
	tally.Used(blob(3))
	tally.Opened(blob(3), cas.OnItsWay) // as vfs tells it: first that it will be used
	tally.Used(blob(4))
	tally.Opened(blob(5), cas.Local)
	tally.Used(blob(5))
	tally.Opened(blob(6), cas.Absent) // it came, and was evicted
	got := tally.Figures([]digest.Digest{blob(3), blob(4), blob(5), blob(6), blob(6), blob(7)})
	want := Figures{
		Foreseen: Amount{2, 9}, Late: Amount{1, 3}, Missed: Amount{2, 8}, Local: Amount{1, 1}, Unused: Amount{2, 13},
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got.Files() != (Amount{6, 21}) {
		t.Errorf("%+v in all", got.Files())
	}
	if rate, ok := got.HitRate(); !ok || rate != 2.0/5 {
		t.Errorf("hit rate %f, %t", rate, ok)
	}
	if rate, ok := (Figures{Local: Amount{9, 9}, Unused: Amount{9, 9}}).HitRate(); ok {
		t.Errorf("nothing had to be fetched, and the hit rate is %f", rate)
	}
}
