package disk

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// TestReadAtMost reads files of other sizes than expected, and a pipe that gives its bytes in parts.
func TestReadAtMost(t *testing.T) {
	const size = 6
	path := filepath.Join(t.TempDir(), "file")
	for content, want := range map[string]string{"": "", "short": "short", "exact!": "exact!", "one more": "one mor"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAtMost(int(f.Fd()), path, size)
		_ = f.Close()
		if string(got) != want || err != nil {
			t.Errorf("of %q: %q, %v", content, got, err)
		}
	}
	// In packet mode each read gets one write.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_DIRECT|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"ab", "cd", "ef"} {
		if _, err := unix.Write(ends[1], []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readAtMost(ends[0], "pipe", size) // the other end is open: a further read would block
	if string(got) != "abcdef" || err != nil {
		t.Errorf("of parts: %q, %v", got, err)
	}
	for _, fd := range ends {
		_ = unix.Close(fd)
	}
}

// TestOpenSmall: an own file keeps its access time when it is read, and a file of another user is
// read, too.
func TestOpenSmall(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	read := func() {
		t.Helper()
		fd, err := openSmall(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		if b, err := readAtMost(fd, path, 4); string(b) != "text" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	old := time.Unix(1e9, 0) // before the last change: any other read sets it
	if err := os.Chtimes(path, old, time.Time{}); err != nil {
		t.Fatal(err)
	}
	read()
	st, err := tamper.StatOf(path)
	if err != nil || st.Atim.Sec != old.Unix() {
		t.Errorf("the access time is %v, %v", time.Unix(st.Atim.Unix()), err)
	}
	if os.Getuid() != 0 {
		t.Log("a file of another user is not read: this requires root")
		return
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Fatal(err)
	}
	read()
}

// TestTouchAndPin: a read counts as one use, and pins the blob meanwhile.
func TestTouchAndPin(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d, missing := digest.Of(digest.SHA256, []byte("text")), digest.Of(digest.SHA256, []byte("other"))
	if err := s.PutBytes(t.Context(), d, []byte("text")); err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	if b, ok := s.ReadLocal(d); string(b) != "text" || !ok {
		t.Errorf("read %q, %t", b, ok)
	}
	if _, ok := s.ReadLocal(missing); ok {
		t.Error("a missing blob is read")
	}
	after := s.Stats()
	if after.Hits-before.Hits != 1 || after.Misses-before.Misses != 1 || after.PinnedBytes != 0 {
		t.Errorf("%d hits, %d misses, %d bytes are pinned", after.Hits-before.Hits, after.Misses-before.Misses, after.PinnedBytes)
	}
	if pinned, _ := s.files.touchAndPin(d, 1); !pinned || s.Stats().PinnedBytes != d.SizeBytes() {
		t.Errorf("pinned %t, %d bytes", pinned, s.Stats().PinnedBytes)
	}
	s.files.unpin(d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if pinned, stamp := s.files.touchAndPin(d, 1<<40); pinned || stamp {
		t.Errorf("of a closed store: pinned %t, stamp %t", pinned, stamp)
	}
}

// TestBlobPath compares with the parts of the path.
func TestBlobPath(t *testing.T) {
	for _, fn := range digest.Functions() {
		for _, size := range []int64{0, 7, digest.MaxSizeBytes} {
			var hash [digest.HashSize]byte
			copy(hash[:], digest.Of(fn, []byte{byte(size)}).AppendHash(nil))
			d, err := digest.FromHash(fn, hash, size)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Join([]string{fn.String(), d.Hash()[:2], strings.ReplaceAll(d.String(), "/", "-")}, "/")
			if got := BlobPath(d); got != want {
				t.Errorf("%s has the path %q, want %q", d, got, want)
			}
		}
	}
}
