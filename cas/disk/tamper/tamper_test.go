package tamper

import (
	"errors"
	"fmt"
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

// sealed makes a file with a text, of which sealed is a Seal. Without a lease it is as on a file
// system that has none.
func sealed(t *testing.T, leased, stays bool, during func(path string) error) (path string, own *Own, seal Seal) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	own = NewOwn(f)
	if !leased {
		own.Free()
	}
	_, err = own.WriteString("text")
	check(t, err)
	if during != nil {
		check(t, during(path))
	}
	if stays {
		return path, own, own.Hold()
	}
	seal, err = own.Seal()
	check(t, err)
	return path, own, seal
}

// moving moves the file at path, once others have done this to it.
func moving(path string, meanwhile func(path string) error) func() (string, error) {
	return func() (string, error) {
		to := path + "-moved"
		if meanwhile != nil {
			if err := meanwhile(path); err != nil {
				return "", err
			}
		}
		return to, os.Rename(path, to)
	}
}

func refused(how int) func(path string) error {
	return func(path string) error {
		if err := openNow(path, how); !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("nobody has a lease: %w", err)
		}
		return nil
	}
}

// replace puts another file like it in the place of that at path.
func replace(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	other := path + "-other"
	return errors.Join(os.WriteFile(other, []byte("TEXT"), 0o600),
		os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, path))
}

// TestSeals: a file that others changed or could change, while it was written, later, or while it
// was moved, is not whole. Where it is, it has the mark that Move returns.
func TestSeals(t *testing.T) {
	write := func(path string) error { return os.WriteFile(path, []byte("TEXT"), 0) }
	touch := func(path string) error { return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) }
	for name, c := range map[string]struct {
		leased, unleased        bool
		during, later, atTheEnd func(path string) error
		whole                   bool
	}{
		"nobody":                {leased: true, unleased: true, whole: true},
		"reads it during":       {leased: true, during: refused(unix.O_RDONLY)},
		"writes it during":      {leased: true, during: refused(unix.O_WRONLY)},
		"reads it later":        {leased: true, later: refused(unix.O_RDONLY)},
		"writes it later":       {leased: true, later: refused(unix.O_WRONLY)},
		"reads it at the end":   {leased: true, atTheEnd: refused(unix.O_RDONLY)},
		"opens it at the end":   {leased: true, unleased: true, atTheEnd: refused(unix.O_WRONLY)},
		"cuts it":               {unleased: true, later: func(path string) error { return os.Truncate(path, 2) }},
		"has written it":        {unleased: true, later: write},
		"sets its time":         {unleased: true, later: touch},
		"sets it at the end":    {unleased: true, atTheEnd: touch},
		"replaces it":           {leased: true, unleased: true, later: replace},
		"replaces it at an end": {leased: true, unleased: true, atTheEnd: replace},
	} {
		for _, leased := range []bool{true, false} {
			for _, stays := range []bool{true, false} {
				if leased && !c.leased || !leased && !c.unleased || stays && !leased && c.atTheEnd != nil {
					continue
				}
				path, own, seal := sealed(t, leased, stays, c.during)
				if c.later != nil {
					time.Sleep(20 * time.Millisecond) // as above
					check(t, c.later(path))
				}
				mark, whole, err := seal.Move(path, moving(path, c.atTheEnd))
				check(t, err)
				at, err := MarkOf(path + "-moved")
				check(t, err)
				if got := whole && mark == at; got != c.whole {
					t.Errorf("%s (leased %t, stays %t): it is whole: %t", name, leased, stays, got)
				}
				check(t, openNow(path+"-moved", unix.O_RDWR)) // nothing has a lease
				if _, err := own.Stat(); (err == nil) != stays {
					t.Errorf("%s (leased %t): stays %t, %v", name, leased, stays, err)
				}
			}
		}
	}
}

// TestUnleasedSeals: without a lease, what was moved is compared with what was sealed.
func TestUnleasedSeals(t *testing.T) {
	path, _, seal := sealed(t, false, false, nil)
	st, err := StatOf(path)
	check(t, err)
	if !seal.moved(&st) {
		t.Error("what was only moved is not")
	}
	for name, change := range map[string]func(st *unix.Stat_t){
		"another device": func(st *unix.Stat_t) { st.Dev++ },
		"another file":   func(st *unix.Stat_t) { st.Ino++ },
		"a longer one":   func(st *unix.Stat_t) { st.Size++ },
		"a later one":    func(st *unix.Stat_t) { st.Mtim.Nsec ^= 1 },
	} {
		other := st
		if change(&other); seal.moved(&other) {
			t.Errorf("%s is what was moved", name)
		}
	}
}

// TestFailedMoves: a file that is not moved keeps its lease. One that cannot be closed does not
// stay in its place.
func TestFailedMoves(t *testing.T) {
	none := errors.New("no place")
	for _, leased := range []bool{true, false} {
		path, own, seal := sealed(t, leased, false, nil)
		if _, whole, err := seal.Move(path, func() (string, error) { return "", none }); whole || !errors.Is(err, none) {
			t.Errorf("leased %t: %t, %v", leased, whole, err)
		}
		if err := openNow(path, unix.O_RDONLY); errors.Is(err, unix.EAGAIN) != leased {
			t.Errorf("leased %t: %v", leased, err)
		}
		_ = own.Close()
	}
	path, own, seal := sealed(t, true, false, nil)
	check(t, own.Close())
	if _, whole, err := seal.Move(path, moving(path, nil)); whole || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%t, %v", whole, err)
	}
	if _, err := os.Lstat(path + "-moved"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it stays: %v", err)
	}
}

// TestSealsOfOthers: the caller's word counts for a file that it has open, and for none without a
// Seal.
func TestSealsOfOthers(t *testing.T) {
	f := file(t)
	known := SealOf(f)
	for name, c := range map[string]struct {
		seal  *Seal
		whole bool
	}{"known": {&known, true}, "unknown": {nil, false}} {
		mark, whole, err := c.seal.Move(f.Name(), func() (string, error) { return f.Name(), os.Chmod(f.Name(), 0o444) })
		check(t, err)
		if whole != c.whole {
			t.Errorf("%s: it is whole: %t", name, whole)
		}
		if at, err := MarkOf(f.Name()); whole && at != mark || err != nil {
			t.Errorf("%s: the mark is %d, %v, want %d", name, mark, err, at)
		}
		if _, err := f.Stat(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenedEarly: a file that a process opened before it was taken over is not whole.
func TestOpenedEarly(t *testing.T) {
	f := file(t)
	other, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	check(t, err)
	own := NewOwn(f)
	check(t, other.Close())
	seal := own.Hold()
	if _, whole, err := seal.Move(f.Name(), moving(f.Name(), nil)); whole || err != nil {
		t.Errorf("it is whole: %t, %v", whole, err)
	}
}

// TestReaderOfNewFile waits for the writer, which still has the lease, but not for long, and for no
// pipe.
func TestReaderOfNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(t, err)
	own := NewOwn(f)
	if !own.leased() {
		t.Fatal("the file system has no leases")
	}
	defer f.Close()
	attempts := 0
	open := func(flags int) (*os.File, error) {
		file, err := os.OpenFile(path, flags, 0)
		if attempts++; errors.Is(err, unix.EAGAIN) && attempts == 3 {
			own.Free()
		}
		return file, err
	}
	file, err := OpenToRead(open)
	check(t, err)
	check(t, file.Close())
	if attempts != 4 {
		t.Errorf("it was opened at the %dth attempt", attempts)
	}

	kept := NewOwn(f)
	if _, err := OpenToRead(open); !kept.leased() || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("with a lease that does not end: %v", err)
	}
	kept.Free()

	path = filepath.Join(t.TempDir(), "pipe")
	check(t, unix.Mkfifo(path, 0o600))
	pipe, err := OpenToRead(open)
	check(t, err)
	check(t, pipe.Close())
}
