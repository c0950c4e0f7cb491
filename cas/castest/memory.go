package castest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Memory is a store in memory, for tests of its users.
type Memory struct {
	dir string // of files that are opened

	mu    sync.Mutex
	blobs map[digest.Digest][]byte
	pins  map[digest.Digest]int
	order []digest.Digest // used last at the end
	max   int64
	bytes int64 // of blobs, and of incoming ones
}

// NewMemory returns an empty Memory with a limit in bytes. It creates the files that it opens in
// dir.
func NewMemory(dir string, maxBytes int64) *Memory {
	return &Memory{dir: dir, max: maxBytes, blobs: map[digest.Digest][]byte{}, pins: map[digest.Digest]int{}}
}

// useLocked returns the bytes of d, and counts a use.
func (m *Memory) useLocked(d digest.Digest) ([]byte, bool) {
	if d.IsEmptyBlob() {
		return nil, true
	}
	b, ok := m.blobs[d]
	if i := slices.Index(m.order, d); i >= 0 {
		m.order = append(slices.Delete(m.order, i, i+1), d)
	}
	return b, ok
}

// ReadBlob implements Store.
func (m *Memory) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, ok := m.ReadLocal(d)
	if !ok {
		return nil, &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return b, nil
}

// ReadLocal implements Store.
func (m *Memory) ReadLocal(d digest.Digest) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.useLocked(d)
	return bytes.Clone(b), ok
}

// OpenBlob implements Store.
func (m *Memory) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	b, err := m.ReadBlob(ctx, d)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(m.dir, "blob-")
	if err != nil {
		return nil, err
	}
	_, err = file.Write(b)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(file.Name())); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// FindMissing implements Store.
func (m *Memory) FindMissing(ctx context.Context, ds []digest.Digest) (missing []digest.Digest, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range ds {
		if _, ok := m.useLocked(d); !ok {
			missing = append(missing, d)
		}
	}
	return missing, ctx.Err()
}

// Has implements Store.
func (m *Memory) Has(d digest.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.blobs[d]
	return ok || d.IsEmptyBlob()
}

// Retain implements Store.
func (m *Memory) Retain(d digest.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.blobs[d]; !ok {
		return d.IsEmptyBlob()
	}
	m.pins[d]++
	return true
}

// Release implements Store.
func (m *Memory) Release(d digest.Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.IsEmptyBlob() {
		return
	}
	if m.pins[d]--; m.pins[d] < 0 {
		panic("castest: release without a retain")
	}
}

// Pinned returns the number of Retains without a Release.
func (m *Memory) Pinned() (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.pins {
		count += n
	}
	return count
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, d digest.Digest, r io.Reader) error {
	err := m.PutPinned(ctx, d, r)
	if err == nil {
		m.Release(d)
	}
	return err
}

// PutPinned implements Store.
func (m *Memory) PutPinned(ctx context.Context, d digest.Digest, r io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, d.SizeBytes()+1))
	if err != nil {
		return err
	}
	if digest.Of(d.Function(), b) != d {
		return fmt.Errorf("put blob %s: %w", d, cas.ErrCorrupt)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.blobs[d]; !there && !d.IsEmptyBlob() {
		if err := m.claimLocked(d.SizeBytes()); err != nil {
			return err
		}
	}
	m.keepLocked(d, b)
	return nil
}

// claimLocked makes room for n bytes.
func (m *Memory) claimLocked(n int64) error {
	for _, d := range slices.Clone(m.order) {
		if m.bytes+n <= m.max {
			break
		}
		if m.pins[d] == 0 {
			m.order = slices.DeleteFunc(m.order, func(o digest.Digest) bool { return o == d })
			m.bytes -= d.SizeBytes()
			delete(m.blobs, d)
		}
	}
	if m.bytes+n > m.max {
		return cas.ErrNoSpace
	}
	m.bytes += n
	return nil
}

// keepLocked stores d, whose space was claimed unless it exists, and pins it.
func (m *Memory) keepLocked(d digest.Digest, b []byte) {
	if d.IsEmptyBlob() {
		return
	}
	if _, there := m.blobs[d]; !there {
		m.order = append(m.order, d)
	}
	m.blobs[d] = b
	m.pins[d]++
}

// Receive implements Store.
func (m *Memory) Receive(d digest.Digest) cas.Incoming { return &incoming{m: m, digest: d} }

// An incoming takes room for all of its blob with the first bytes.
type incoming struct {
	m       *Memory
	digest  digest.Digest
	data    []byte // guarded by m.mu
	claimed bool   // guarded by m.mu
	closed  bool   // guarded by m.mu
}

// WriteAt implements cas.Incoming.
func (in *incoming) WriteAt(p []byte, off int64) (int, error) {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	if !in.claimed {
		if err := in.m.claimLocked(in.digest.SizeBytes()); err != nil {
			return 0, err
		}
		in.claimed, in.data = true, make([]byte, in.digest.SizeBytes())
	}
	return copy(in.data[off:], p), nil
}

// ReadAt implements cas.Incoming.
func (in *incoming) ReadAt(p []byte, off int64) (int, error) {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	if in.closed {
		return 0, syscall.EBADF
	}
	return bytes.NewReader(in.data).ReadAt(p, off)
}

// Keep implements cas.Incoming.
func (in *incoming) Keep(context.Context) error {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	if _, there := in.m.blobs[in.digest]; there {
		in.m.bytes -= in.digest.SizeBytes()
	}
	in.m.keepLocked(in.digest, bytes.Clone(in.data))
	return nil
}

// Drop implements cas.Incoming.
func (in *incoming) Drop() {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	if in.claimed {
		in.m.bytes -= in.digest.SizeBytes()
	}
	in.closed = true
}

// Close implements cas.Incoming.
func (in *incoming) Close() {
	in.m.mu.Lock()
	defer in.m.mu.Unlock()
	in.closed = true
}
