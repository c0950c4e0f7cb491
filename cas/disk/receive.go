package disk

import (
	"context"
	"io/fs"
	"os"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// Receive begins to receive d. It reserves no space before the first bytes are written.
func (s *Store) Receive(d digest.Digest) cas.Incoming {
	return &incoming{files: s.files, digest: d, making: make(chan struct{}, 1)}
}

// An incoming is a blob whose bytes arrive in any order: a file with holes under tmp.
type incoming struct {
	files  *blobs
	digest digest.Digest

	// making is held while room is made in the store: it has one place.
	making   chan struct{}
	claimed  int64 // bytes that room was made for; guarded by making
	reserved int64 // of the store's room, at most the size; guarded by making

	mu   sync.Mutex
	file *tamper.Own // guarded by mu; nil until the first bytes have come
}

func (in *incoming) current() *tamper.Own {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.file
}

// WriteAt implements Incoming.
func (in *incoming) WriteAt(p []byte, off int64) (int, error) {
	file, err := in.reserve(int64(len(p)))
	if err != nil {
		return 0, err
	}
	done := 0
	// On a full disk an attempt may have written a part, which is written again.
	err = in.files.withSpace(in.digest.SizeBytes()-off, func() (err error) {
		done, err = file.WriteAt(p, off)
		return err
	})
	return done, err
}

// reserve makes room for n more bytes, and the file if there is none.
func (in *incoming) reserve(n int64) (*tamper.Own, error) {
	in.making <- struct{}{}
	defer func() { <-in.making }()
	size := in.digest.SizeBytes()
	if need := in.claimed + n - in.reserved; need > 0 && in.reserved < size {
		need = min(max(need, reserveBytes), size-in.reserved)
		if err := in.files.makeRoom(need); err != nil {
			return nil, err
		}
		in.reserved += need
	}
	in.claimed += n
	if file := in.current(); file != nil {
		return file, nil
	}
	if err := in.files.fits(size); err != nil {
		return nil, err
	}
	file, err := in.files.createTemp()
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.file = tamper.NewOwn(file)
	return in.file, nil
}

// ReadAt implements Incoming.
func (in *incoming) ReadAt(p []byte, off int64) (int, error) {
	file := in.current()
	if file == nil {
		return 0, fs.ErrClosed
	}
	return file.ReadAt(p, off)
}

// Keep implements Incoming.
func (in *incoming) Keep(ctx context.Context) error {
	file := in.current()
	sealed := file.Hold()
	defer file.Free()
	return in.files.settle(ctx, in.digest, arrival{from: file.Name(), seal: &sealed})
}

// Drop implements Incoming.
func (in *incoming) Drop() {
	in.files.release(in.reserved)
	if file := in.current(); file != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
}

// Close implements Incoming.
func (in *incoming) Close() {
	if file := in.current(); file != nil {
		_ = file.Close()
	}
}
