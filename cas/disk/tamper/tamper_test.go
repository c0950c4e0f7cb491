package tamper

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file makes a file with a text, and opens it for reading.
func file(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(path, []byte("text"), 0o600))
	f, err := os.Open(path)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestMarks: each change of a file changes its mark, whatever the change sets the times to.
func TestMarks(t *testing.T) {
	f := file(t)
	first, err := MarkOf(f.Name())
	check(t, err)
	if open, err := MarkOfOpen(f.Fd()); err != nil || open != first {
		t.Errorf("the open file has the mark %d, %v, by its name %d", open, err, first)
	}
	seen := map[uint64]string{first: "nothing"}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"written", func() error { return os.WriteFile(f.Name(), []byte("tent"), 0) }},
		{"cut", func() error { return os.Truncate(f.Name(), 3) }},
		{"its time set", func() error { return os.Chtimes(f.Name(), time.Unix(1, 0), time.Unix(1, 0)) }},
		{"its mode set", func() error { return os.Chmod(f.Name(), 0o400) }},
		{"linked", func() error { return os.Link(f.Name(), f.Name()+"-other") }},
	} {
		time.Sleep(20 * time.Millisecond) // longer than a tick of the clock that files have their times of
		check(t, c.change())
		m, err := MarkOf(f.Name())
		check(t, err)
		if was, again := seen[m]; again {
			t.Errorf("%s: it has the mark that it had after %s", c.name, was)
		}
		seen[m] = c.name
	}
	if _, err := MarkOf(f.Name() + "-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there has a mark: %v", err)
	}
}

// TestLeases: one is refused while somebody could write to the file, and holds until somebody wants
// to. TestSettled: a file settles some time after its last change.
func TestSettled(t *testing.T) {
	f := file(t)
	check(t, f.Chmod(0o600))
	changed := func() time.Time {
		st, err := StatOf(f.Name())
		check(t, err)
		return time.Unix(st.Ctim.Unix())
	}
	for settled, err := false, error(nil); !settled; time.Sleep(time.Millisecond) {
		age := time.Since(changed())
		if _, settled, err = SettledMarkOf(f.Name()); !settled && age > time.Second+longestTick {
			t.Fatal("it never settles")
		}
		check(t, err)
		if age = time.Since(changed()); settled && age <= longestTick {
			t.Errorf("it is settled after %s", age)
		}
	}
	if _, _, err := SettledMarkOf(f.Name() + "-not"); err == nil {
		t.Error("what is not there has a mark")
	}
}

func TestLeases(t *testing.T) {
	for name, how := range map[string]int{"for writing": unix.O_WRONLY, "for reading": unix.O_RDONLY} {
		f := file(t)
		other, err := unix.Open(f.Name(), how|unix.O_CLOEXEC, 0)
		check(t, err)
		if _, ok := LeaseOf(f); ok {
			t.Errorf("somebody has it open %s", name)
		}
		check(t, unix.Close(other))
	}
	f := file(t)
	l, ok := LeaseOf(f)
	if !ok || !l.Holds() {
		t.Fatal("nobody else has it open, and there is no lease")
	}
	check(t, openNow(f.Name(), unix.O_RDONLY))
	if !l.Holds() {
		t.Error("a reader has broken the lease")
	}
	if err := openNow(f.Name(), unix.O_WRONLY); !errors.Is(err, unix.EAGAIN) || l.Holds() {
		t.Errorf("a writer does not wait: %v, the lease holds: %t", err, l.Holds())
	}
	l.Release()
	check(t, openNow(f.Name(), unix.O_WRONLY))
	none := Lease{fd: -1}
	none.Release()
	if !none.Holds() {
		t.Error("where there are no leases, none holds")
	}
}

func openNow(path string, how int) error {
	fd, err := unix.Open(path, how|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// TestUnwritten tells of writers before and meanwhile, not of readers.
func TestUnwritten(t *testing.T) {
	f := file(t)
	still := Unwritten(f.Name())
	check(t, openNow(f.Name(), unix.O_RDONLY))
	if !still() {
		t.Error("a reader is taken for a writer")
	}
	still = Unwritten(f.Name())
	if err := openNow(f.Name(), unix.O_WRONLY); !errors.Is(err, unix.EAGAIN) || still() {
		t.Errorf("a writer is not noticed: %v", err)
	}
	writer, err := os.OpenFile(f.Name(), os.O_WRONLY, 0)
	check(t, err)
	still = Unwritten(f.Name())
	check(t, writer.Close())
	if still() || Unwritten(f.Name()+"-none")() {
		t.Error("a writer is not noticed, or what is not there is unwritten")
	}
}

// TestSeals: a file that others changed, while it was written or later, is not whole.
func TestSeals(t *testing.T) {
	for name, c := range map[string]struct {
		during, later func(path string) error
		whole         bool
	}{
		"nobody":  {whole: true},
		"during":  {during: func(path string) error { return openNow(path, unix.O_RDONLY) }},
		"later":   {later: func(path string) error { return os.Truncate(path, 2) }},
		"removed": {later: os.Remove},
	} {
		path := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(path)
		check(t, err)
		own := NewOwn(f)
		_, err = own.WriteString("text")
		check(t, err)
		if c.during != nil {
			if err := c.during(path); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("%s: %v", name, err)
			}
		}
		seal, err := own.Seal()
		check(t, err)
		if c.later != nil {
			time.Sleep(20 * time.Millisecond) // as above
			check(t, c.later(path))
		}
		if got := seal.Whole(path); got != c.whole {
			t.Errorf("%s: it is whole: %t", name, got)
		}
		check(t, errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Rename(path, path+"-moved")))
		st, err := StatOf(path + "-moved")
		check(t, err)
		if seal.Moved(&st) {
			t.Errorf("%s: what was written anew is what was moved", name)
		}
		st.Mtim, st.Size = seal.mtime, seal.size
		if st.Ino = seal.inode + 1; seal.Moved(&st) {
			t.Errorf("%s: another file like it is what was moved", name)
		}
		st.Ino = seal.inode
		if !seal.Moved(&st) {
			t.Errorf("%s: what was only moved is not", name)
		}
		if st.Size++; seal.Moved(&st) {
			t.Errorf("%s: what became longer was only moved", name)
		}
	}
	var none *Seal
	if !none.Watch("nothing")() || !none.Whole("nothing") || !none.Moved(nil) {
		t.Error("who has no seal does not ask")
	}
}

// TestOpenedEarly: a file that a process opened before it was taken over is not whole.
func TestOpenedEarly(t *testing.T) {
	f := file(t)
	other, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	check(t, err)
	own := NewOwn(f)
	check(t, other.Close())
	if seal := own.Hold(); seal.Whole(f.Name()) {
		t.Error("it is whole")
	}
}

// TestWatchedSeals: a process that opens a sealed file for writing during its move is detected,
// whether it closed the file or not.
func TestWatchedSeals(t *testing.T) {
	for name, seal := range map[string]func(own *Own) Seal{
		"closed": func(own *Own) Seal {
			s, err := own.Seal()
			check(t, err)
			return s
		},
		"held": (*Own).Hold,
	} {
		path := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(path)
		check(t, err)
		s := seal(NewOwn(f))
		if still := s.Watch(path); !still() {
			t.Errorf("%s: nobody wrote, and somebody could", name)
		}
		still := s.Watch(path)
		if err := openNow(path, unix.O_WRONLY); !errors.Is(err, unix.EAGAIN) || still() {
			t.Errorf("%s: a writer is not noticed: %v", name, err)
		}
		_ = f.Close()
	}
}
