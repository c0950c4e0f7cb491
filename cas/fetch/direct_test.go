package fetch

import (
	"context"
	"io"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// storeBeside asks others before it asks storage.
type storeBeside struct{ near, storage *storeUpstream }

func (u storeBeside) Fetch(
	ctx context.Context, ds []digest.Digest, sink func(d digest.Digest, r io.Reader) error,
) error {
	return u.near.Fetch(ctx, ds, sink)
}

func (u storeBeside) Direct() cas.Fetcher { return u.storage }

// TestMessagesComeFromStorage: peers do not keep messages, which are rarely read twice.
func TestMessagesComeFromStorage(t *testing.T) {
	near, ds := storeNewUpstream("blob", "message")
	storage, _ := storeNewUpstream("blob", "message")
	r := storeOpen(t, t.TempDir(), storeOptions{}).Through(storeBeside{near, storage})
	if b, err := r.ReadBlob(t.Context(), ds[0]); string(b) != "blob" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := r.ReadMessage(t.Context(), ds[1]); string(b) != "message" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if len(near.calls) != 1 || len(storage.calls) != 1 {
		t.Errorf("peers were asked %d times, storage %d times", len(near.calls), len(storage.calls))
	}
}
