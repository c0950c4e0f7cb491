package records

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

var _ Durable = (*Folder)(nil)

// A Folder stores Durable records as files of one folder, which it creates with the first record.
// It is for a few records that change rarely, such as quotas. A record is on disk when the method
// that writes it returns. A damaged file is an error until an operator restores or removes the
// file. Only one process at a time may use a folder. A Folder needs no closing.
type Folder struct {
	dir string
	mu  sync.Mutex // held while a record is written, so that CompareAndSwap is atomic
}

// NewFolder returns the Folder at dir, which need not exist.
func NewFolder(dir string) *Folder { return &Folder{dir: dir} }

// Path returns the path of a record's file.
func (f *Folder) Path(k Key) string {
	name := fmt.Sprintf("%s-%s-%d", k.Digest.Function(), k.Digest.Hash(), k.Digest.SizeBytes())
	if k.Instance != "" {
		name += fmt.Sprintf("-%x", sha256.Sum256([]byte(k.Instance)))
	}
	return filepath.Join(f.dir, k.Bucket, name)
}

// Get implements Durable.
func (f *Folder) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := f.usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	value, err := f.read(k)
	return value, about("get", k, err)
}

// Put implements Durable.
func (f *Folder) Put(ctx context.Context, k Key, value []byte) error {
	if err := f.storable(ctx, k, value); err != nil {
		return about("put", k, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return about("put", k, f.write(k, value))
}

// CompareAndSwap implements Durable.
func (f *Folder) CompareAndSwap(ctx context.Context, k Key, old, value []byte) error {
	if err := f.storable(ctx, k, value); err != nil {
		return about("swap", k, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.read(k)
	switch {
	case err != nil && !errors.Is(err, ErrNotFound):
	case !same(now, old):
		err = ErrConflict
	default:
		err = f.write(k, value)
	}
	return about("swap", k, err)
}

func (f *Folder) usable(ctx context.Context, k Key) error {
	if err := usable(ctx, k); err != nil {
		return err
	}
	if filepath.Base(k.Bucket) != k.Bucket || !filepath.IsLocal(k.Bucket) || k.Bucket == "." {
		return fmt.Errorf("%w: bucket %q is not the name of a folder", ErrInvalid, k.Bucket)
	}
	return nil
}

func (f *Folder) storable(ctx context.Context, k Key, value []byte) error {
	if err := f.usable(ctx, k); err != nil {
		return err
	}
	return checkValue(k, len(value), defaultMaxBytes)
}

// heading returns the first line of a record's file; the value follows. The checksum is CRC-32C of
// the key and the value.
func heading(k Key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(encodeKey(k), castagnoli), castagnoli, value)
	return fmt.Appendf(nil, "forerunner durable record, crc32c %08x, %d bytes\n", sum, len(value))
}

// read returns the value in the file of k, or ErrNotFound if there is no file.
func (f *Folder) read(k Key) ([]byte, error) {
	content, err := os.ReadFile(f.Path(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	_, value, _ := bytes.Cut(content, []byte("\n"))
	value = append([]byte{}, value...)
	if !bytes.Equal(content[:len(content)-len(value)], heading(k, value)) {
		return nil, fmt.Errorf("%w: restore %s, or remove it to begin without", ErrDamaged, f.Path(k))
	}
	return value, nil
}

// write replaces the file of k. The file is on disk when write returns. After a crash there is the
// old or the new file, and perhaps an unused temporary file.
func (f *Folder) write(k Key, value []byte) error {
	path := f.Path(k)
	if err := makeDurable(filepath.Dir(path)); err != nil {
		return err
	}
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(heading(k, value), value...))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// makeDurable creates a folder and its missing parents, and syncs them to disk.
func makeDurable(dir string) error {
	if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
		return err
	}
	if err := makeDurable(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// syncDir syncs the entries of a folder to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
