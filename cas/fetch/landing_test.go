package fetch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Of the blobs in one answer, those that callers have begun to wait for are written first, the
// latest caller's first.
func TestStoreWritesWantedBlobsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, ds := storeNewPatient("a", "b", "c", "d", "e")
		s := storeOpen(t, t.TempDir(), storeOptions{})
		r := s.Through(u)
		_, wait := storeBehind(r, ds...)
		var batch *batch
		for _, d := range []digest.Digest{ds[2], ds[3]} {
			asked, err := r.ask(context.Background(), []digest.Digest{d})
			if err != nil || len(asked.flights) != 1 || asked.flights[0].batch == nil {
				t.Fatalf("%d flights, or not on the way: %v", len(asked.flights), err)
			}
			defer s.leave(asked.flights[0])
			batch = asked.flights[0].batch
		}
		if !batch.holds() {
			t.Error("a small batch is not kept in memory")
		}
		l := &delivery{t: r, b: batch, order: ds, held: map[digest.Digest][]byte{}}
		for _, d := range ds {
			l.held[d] = nil
		}
		for i, want := range []int{3, 2, 0, 1, 4} {
			if d, _, ok := l.next(); !ok || d != ds[want] {
				t.Errorf("%d. is %v, %t; want blob %d", i, d, ok, want)
			}
		}
		if d, _, ok := l.next(); ok {
			t.Errorf("one more: %v", d)
		}
		close(u.behind.gate)
		if got, err := wait(); err != nil || len(got) != len(ds) {
			t.Errorf("%d blobs came: %v", len(got), err)
		}
	})
}

// Large batches are written as they come.
func TestStoreHoldsLittle(t *testing.T) {
	d := digest.Of(digest.SHA256, []byte("a"))
	half, err := digest.Parse(digest.SHA256, d.Hash(), cas.BatchBytes/2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		digests []digest.Digest
		want    bool
	}{
		{[]digest.Digest{d}, false}, // there is nothing to choose
		{[]digest.Digest{half, half}, true},
		{[]digest.Digest{half, half, d}, false},
	} {
		if got := (&batch{digests: c.digests}).holds(); got != c.want {
			t.Errorf("%d blobs: %t, want %t", len(c.digests), got, c.want)
		}
	}
}
