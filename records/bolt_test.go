package records

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
)

func closeBolt(t *testing.T, b *Bolt) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBoltSurvivesARestart(t *testing.T) {
	path := boltPath(t)
	// Only Flush commits before Close.
	b := openBolt(t, path, BoltOptions{CommitAfter: time.Hour})
	for n := range 300 {
		put(t, b, testKey(n), testValue(n, n*n))
	}
	flush(t, b)
	put(t, b, testKey(0), testValue(1000, 10))
	closeBolt(t, b)
	if err := b.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	b = openBolt(t, path, BoltOptions{})
	expect(t, b, testKey(0), testValue(1000, 10))
	for n := 1; n < 300; n++ {
		expect(t, b, testKey(n), testValue(n, n*n))
	}
}

func TestBoltIsClosed(t *testing.T) {
	b := openBolt(t, boltPath(t), BoltOptions{})
	put(t, b, testKey(1), testValue(1, 1))
	closeBolt(t, b)
	_, err := b.Get(t.Context(), testKey(1))
	for name, err := range map[string]error{
		"get":   err,
		"put":   b.Put(t.Context(), testKey(1), nil),
		"flush": b.Flush(t.Context()),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBoltIsHeldByOneProcess(t *testing.T) {
	path := boltPath(t)
	b := openBolt(t, path, BoltOptions{})
	_, err := OpenBolt(path, BoltOptions{LockTimeout: time.Millisecond})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("second open: %v", err)
	}
	put(t, b, testKey(1), testValue(1, 1))
	opened := make(chan error, 1)
	go func() {
		second, err := OpenBolt(path, BoltOptions{LockTimeout: time.Minute})
		if err == nil {
			_, err = second.Get(context.Background(), testKey(1))
			err = errors.Join(err, second.Close())
		}
		opened <- err
	}()
	closeBolt(t, b)
	if err := <-opened; err != nil {
		t.Errorf("the waiting open: %v", err)
	}
}

// TestBoltRemembersUses restarts between the use of a record and the eviction of unused ones.
func TestBoltRemembersUses(t *testing.T) {
	const size, limit = 10000, 1 << 20
	path, o := boltPath(t), BoltOptions{MaxBytes: limit}
	b := openBolt(t, path, o)
	for n := range 100 {
		put(t, b, testKey(n), testValue(n, size))
	}
	flush(t, b)
	expect(t, b, testKey(0), testValue(0, size))
	closeBolt(t, b)
	b = openBolt(t, path, o)
	for n := 100; n < 120; n++ {
		put(t, b, testKey(n), testValue(n, size))
	}
	flush(t, b)
	expect(t, b, testKey(0), testValue(0, size))
	expect(t, b, testKey(1), nil)
	expect(t, b, testKey(119), testValue(119, size))
}

// TestBoltStaysSmall replaces records of many sizes again and again, with far more data than the
// limit.
func TestBoltStaysSmall(t *testing.T) {
	const limit = 8 << 20
	path := boltPath(t)
	b := openBolt(t, path, BoltOptions{MaxBytes: limit})
	for n := range 3000 {
		size := 100 + (n*7919)%40000
		if n%100 == 0 {
			size = MaxValueBytes - 100
		}
		put(t, b, testKey(n%2000), testValue(n, size))
		if n%20 == 0 {
			flush(t, b)
		}
	}
	flush(t, b)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes for a limit of %d", info.Size(), limit)
	if info.Size() > 4*limit+2*maxQueued {
		t.Errorf("the file has %d bytes, for a limit of %d", info.Size(), limit)
	}
}

// TestBoltWaitsForRoom queues more than the limit while the next commit is far off.
func TestBoltWaitsForRoom(t *testing.T) {
	b := openBolt(t, boltPath(t), BoltOptions{CommitAfter: time.Hour})
	const records = 3 * maxQueued / MaxValueBytes
	for n := range records {
		put(t, b, testKey(n), testValue(n, MaxValueBytes-100))
	}
	for n := range records {
		expect(t, b, testKey(n), testValue(n, MaxValueBytes-100))
	}
}

func TestBoltIgnoresADamagedRecord(t *testing.T) {
	path := boltPath(t)
	b := openBolt(t, path, BoltOptions{})
	value := bytes.Repeat([]byte("a value that can be found "), 10)
	put(t, b, testKey(1), value)
	put(t, b, testKey(2), []byte("another"))
	closeBolt(t, b)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, value[:7], []byte("a walue")), 0o600); err != nil {
		t.Fatal(err)
	}
	b = openBolt(t, path, BoltOptions{})
	expect(t, b, testKey(1), nil)
	expect(t, b, testKey(2), []byte("another"))
	put(t, b, testKey(1), value)
	flush(t, b)
	expect(t, b, testKey(1), value)
}

// TestBoltOnAFullDisk fills a small file system, and then frees space.
func TestBoltOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=32m")
	core, logs := observer.New(zap.InfoLevel)
	b := openBolt(t, filepath.Join(dir, "records"), BoltOptions{Logger: zap.New(core)})
	put(t, b, testKey(0), testValue(0, 1000))
	flush(t, b)
	ballast := filepath.Join(dir, "ballast")
	// There is no room for any of the records below, however they are batched.
	if err := os.WriteFile(ballast, make([]byte, 32<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if filled, err := os.Stat(ballast); err != nil {
		t.Fatal(err)
	} else if err := os.Truncate(ballast, filled.Size()-512<<10); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 10; n++ {
		put(t, b, testKey(n), testValue(n, 900<<10))
	}
	for range 2 {
		put(t, b, testKey(10), testValue(10, 3<<20/4))
		put(t, b, testKey(11), testValue(11, 3<<20/4))
		put(t, b, testKey(12), testValue(12, 3<<20/4))
		if err := b.Flush(t.Context()); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("flush to a full disk: %v", err)
		}
	}
	expect(t, b, testKey(0), testValue(0, 1000))
	expect(t, b, testKey(10), nil)
	if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d errors in the log, want 1: %v", n, logs.All())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	put(t, b, testKey(1), testValue(1, 1<<20-100))
	flush(t, b)
	closeBolt(t, b)
	b = openBolt(t, filepath.Join(dir, "records"), BoltOptions{Logger: zap.New(core)})
	expect(t, b, testKey(0), testValue(0, 1000))
	expect(t, b, testKey(1), testValue(1, 1<<20-100))
	if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d errors in the log, want 1: %v", n, logs.All())
	}
	closeBolt(t, b)
}

// smallDisk mounts a tmpfs and unmounts it at the end of the test.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount tmpfs: %v", err)
		}
		t.Skipf("needs a small file system: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
