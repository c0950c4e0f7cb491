package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A disk has the files of a Store. Its writes fail, and wait while blocked is not nil.
type disk struct {
	mu      sync.Mutex
	broken  error         // guarded by mu
	blocked chan struct{} // guarded by mu
	waits   chan struct{} // has a value when a write waits
	synced  int           // guarded by mu
}

// create replaces createFile.
func (d *disk) create(path string) (file, error) {
	if err := d.wait(); err != nil {
		return nil, err
	}
	f, err := createFile(path)
	if err != nil {
		return nil, err
	}
	return diskFile{d, f}, nil
}

func (d *disk) wait() error {
	d.mu.Lock()
	blocked, err := d.blocked, d.broken
	d.mu.Unlock()
	if blocked != nil {
		select {
		case d.waits <- struct{}{}:
		default:
		}
		<-blocked
	}
	return err
}

func (d *disk) breaks(err error) {
	d.mu.Lock()
	d.broken = err
	d.mu.Unlock()
}

// A diskFile is a file of a disk.
type diskFile struct {
	*disk
	file
}

func (f diskFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	return f.file.WriteAt(b, at)
}

func (f diskFile) Sync() error {
	f.mu.Lock()
	f.synced++
	f.mu.Unlock()
	return f.file.Sync()
}

// openOn opens a Store whose files are on a disk. Its log is returned.
func openOn(t *testing.T, d *disk, folder string, o Options) (*Store, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	o.Logger = zap.New(core)
	s := open(t, folder, o)
	s.create = d.create
	return s, logs
}

// largeRecord is the i-th record, with some KiB.
func largeRecord(i int) *historypb.Record {
	r := recordOf(i)
	r.Message = strings.Repeat("x", 4<<10)
	return r
}

// held returns the memory of a Store for records and indexes.
func held(s *Store) (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments {
		if g.index != nil {
			bytes += g.index.bytes
		}
		for _, block := range g.pending {
			bytes += int64(cap(block))
		}
	}
	return bytes
}

// lines returns the lines of a log.
func lines(logs *observer.ObservedLogs) (all []string) {
	for _, e := range logs.All() {
		all = append(all, e.Message)
	}
	return all
}

const (
	saidFailing = "records of completed operations cannot be written: they wait in memory"
	saidLosing  = "records of completed operations are lost: the disk does not take them in time"
	saidGood    = "records of completed operations are written again"
)

// TestDiskBlocks adds records while a write does not return. Each is taken at once, or refused and
// counted when there is no room for more; the memory has a limit.
func TestDiskBlocks(t *testing.T) {
	d := &disk{blocked: make(chan struct{}), waits: make(chan struct{}, 1)}
	s, logs := openOn(t, d, t.TempDir(), Options{Memory: 32 << 20}) // an index has a MiB
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	if !s.Add(recordOf(0)) {
		t.Fatal("the first record is not taken")
	}
	<-d.waits
	const n = 3000
	taken := 1
	for i := 1; i < n; i++ {
		if s.Add(largeRecord(i)) {
			taken++
		}
	}
	if stats := s.Stats(); stats.Lost != uint64(n-taken) || stats.Lost < n/2 || taken < 400 {
		t.Errorf("%d of %d are taken, %d lost", taken, n, stats.Lost)
	}
	if bytes := held(s); bytes > 4<<20 {
		t.Errorf("%d bytes wait for the disk", bytes)
	}
	if list, _, err := s.Find(t.Context(), Query{Limit: 1}); err != nil || len(list) != 1 {
		t.Errorf("a search while the disk blocks: %d records, %v", len(list), err)
	}
	close(d.blocked)
	stop()
	running.Wait()
	if found := find(t, s, Query{Limit: 1000}); len(found) != taken {
		t.Errorf("%d records are found of %d that were taken", len(found), taken)
	}
	if got := lines(logs); fmt.Sprint(got) != fmt.Sprint([]string{saidLosing, saidGood}) {
		t.Errorf("log: %q", got)
	}
	if lost := logs.FilterMessage(saidGood).All()[0].ContextMap()["lost"]; lost != uint64(n-taken) {
		t.Errorf("the log says that %v are lost, and %d are", lost, n-taken)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDiskIsFull adds many more records than memory has room for while the disk takes none. The
// latest are kept and written when there is room, the others are counted.
func TestDiskIsFull(t *testing.T) {
	folder := t.TempDir()
	d := &disk{}
	s, logs := openOn(t, d, folder, Options{Memory: 32 << 20})
	fill(t, s, 0, 100)
	s.write(true)
	d.breaks(syscall.ENOSPC)
	const n = 20_000
	for i := 100; i < n; i++ {
		r := recordOf(i)
		if i%10 == 0 {
			r = largeRecord(i)
		}
		r.Invocation = fmt.Sprintf("one of its own %d", i)
		s.Add(r)
		if i%100 == 99 {
			s.write(i%200 == 199)
			if bytes := held(s); bytes > 6<<20 {
				t.Fatalf("after %d records %d bytes wait for the disk", i, bytes)
			}
		}
	}
	if n := len(s.segments); n > 4 {
		t.Errorf("there are %d segments", n)
	}
	d.breaks(nil)
	last := recordOf(n)
	s.Add(last)
	s.write(true)
	found := find(t, s, Query{Limit: 1000})
	if len(found) < 500 || !proto.Equal(found[0], last) || !proto.Equal(found[len(found)-1], recordOf(0)) {
		t.Errorf("%d records are found: %v … %v", len(found), found[0], found[len(found)-1])
	}
	stats := s.Stats()
	if int(stats.Records) != len(found) || int(stats.Lost)+len(found) != n+1 {
		t.Errorf("of %d records %d are found: %+v", n+1, len(found), stats)
	}
	if got := lines(logs); fmt.Sprint(got) != fmt.Sprint([]string{saidFailing, saidLosing, saidGood}) {
		t.Errorf("log: %q", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, folder, Options{})
	if list := find(t, again, Query{Limit: 1000}); len(list) != len(found) {
		t.Errorf("after a restart there are %d records, want %d", len(list), len(found))
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestIndexCannotBeWritten adds records to files whose indexes cannot be written: those stay in
// memory up to a limit, and are written when they can.
func TestIndexCannotBeWritten(t *testing.T) {
	folder := t.TempDir()
	s, _ := openOn(t, &disk{}, folder, Options{Memory: 32 << 20})
	const blocked, n = 20, 30_000
	for i := range blocked {
		if err := os.MkdirAll(filepath.Join(folder, fmt.Sprintf("%08d%s", i+1, indexSuffix), "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	taken := 0
	for i := range n {
		r := recordOf(i)
		r.Invocation = fmt.Sprintf("one of its own %d %200d", i, i) // long, so that fewer fill the indexes
		if s.Add(r) {
			taken++
		}
		if i%500 == 499 {
			s.write(true)
			if bytes := held(s); bytes > 6<<20 {
				t.Fatalf("after %d records %d bytes wait for the disk", i, bytes)
			}
		}
	}
	for i := range blocked {
		if err := os.RemoveAll(filepath.Join(folder, fmt.Sprintf("%08d%s", i+1, indexSuffix))); err != nil {
			t.Fatal(err)
		}
	}
	s.write(true)
	if bytes := held(s); bytes > 2<<20 {
		t.Errorf("%d bytes are in memory when all can be written", bytes)
	}
	if found := len(find(t, s, Query{Limit: 10_000})); found != taken || taken == n || s.Stats().Lost != uint64(n-taken) {
		t.Errorf("%d are found of %d, and %d lost", found, taken, s.Stats().Lost)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFileCannotBegin has no room for the first bytes of a file. The next one is whole.
func TestFileCannotBegin(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{})
	path := filepath.Join(folder, "00000001"+segmentSuffix)
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 0, 10)
	s.write(true)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file without its first bytes is left: %v", err)
	}
	s.write(true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, folder, Options{})
	if list := find(t, again, Query{Limit: 100}); len(list) != 10 {
		t.Errorf("%d records of 10", len(list))
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullBlockIsSynced writes a block that is full, after which no record comes: it must not wait
// for the kernel to write it.
func TestFullBlockIsSynced(t *testing.T) {
	d := &disk{}
	s, _ := openOn(t, d, t.TempDir(), Options{})
	for i := 0; len(s.full) == 0; i++ {
		s.Add(largeRecord(i))
	}
	s.write(false) // as Run does for a full block
	if len(s.segments[0].pending) > 0 || d.synced > 0 {
		t.Fatalf("%d blocks wait, %d syncs", len(s.segments[0].pending), d.synced)
	}
	s.write(true)
	s.write(true)
	if d.synced != 1 {
		t.Errorf("the file was synced %d times, want 1", d.synced)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTooLarge refuses a record that no block may have.
func TestTooLarge(t *testing.T) {
	s, logs := openOn(t, &disk{}, t.TempDir(), Options{})
	r := recordOf(1)
	r.Message = strings.Repeat("x", MaxRecordBytes)
	if s.Add(r) || s.Stats().Lost != 1 || logs.Len() != 1 {
		t.Errorf("%+v, %q", s.Stats(), lines(logs))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
