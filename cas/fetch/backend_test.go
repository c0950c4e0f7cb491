package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

var (
	_ Store = (*disk.Store)(nil)
	_ Store = (*castest.Memory)(nil)
)

// TestAnotherStore fetches into a store that is not a folder. Requested blobs arrive, also in
// parts, and nothing stays retained.
func TestAnotherStore(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	store := castest.NewMemory(t.TempDir(), 64<<20)
	x, err := NewGroup(store, Options{ArriveAbove: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := x.Through(clientOf(f, client.Options{}))
	var small []digest.Digest
	for n := range 100 {
		small = append(small, f.Put(t, digest.SHA256, servertest.Bytes(uint64(n), 100+n)))
	}
	if err := r.Load(t.Context(), small[:50]); err != nil {
		t.Error(err)
	}
	if came, err := r.Prefetch(t.Context(), small); len(came) != 50 || err != nil {
		t.Errorf("%d came, %v", len(came), err)
	}
	if missing, err := store.FindMissing(t.Context(), small); len(missing) > 0 || err != nil {
		t.Errorf("missing are %v, %v", missing, err)
	}
	data := servertest.Bytes(1, 5<<20)
	large := f.Put(t, digest.SHA256, data)
	file, arrival, _, err := r.OpenArriving(t.Context(), large)
	if err != nil || file != nil {
		t.Fatalf("%v, %v", file, err)
	}
	end := make([]byte, 1000)
	if _, err := arrival.ReadAt(t.Context(), end, int64(len(data)-len(end))); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(end, data[len(data)-len(end):]) {
		t.Errorf("the end: %v", err)
	}
	if err := arrival.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	arrival.Close()
	if b, err := r.ReadBlob(t.Context(), large); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	absent := digest.Of(digest.SHA256, []byte("absent"))
	if err := r.Load(context.Background(), []digest.Digest{small[0], absent}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("what is nowhere: %v", err)
	}
	x.Close()
	if n := store.Pinned(); n != 0 {
		t.Errorf("%d are retained", n)
	}
}
