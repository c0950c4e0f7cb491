package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// makeFile makes a file where s says, moves it to a folder, and returns its group of the disk.
func makeFile(t *testing.T, s *Scatter, dir, to, name string) (group uint64) {
	t.Helper()
	from := filepath.Join(s.Next(), name)
	err := os.WriteFile(from, nil, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		from = filepath.Join(dir, name)
		err = os.WriteFile(from, nil, 0o600)
	}
	if err := errors.Join(err, os.Rename(from, filepath.Join(to, name))); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(to, name), &st); err != nil {
		t.Fatal(err)
	}
	return (st.Ino - 1) / inodesPerGroup
}

// scattered makes two folders on a disk: for new files, and where these go.
func scattered(t *testing.T, disk string) (dir, to string) {
	t.Helper()
	dir, to = filepath.Join(disk, "tmp"), filepath.Join(disk, "kept")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	return dir, to
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestScatter: without a journal, files are all over the disk, and folders without files do not
// stay.
func TestScatter(t *testing.T) {
	dir, to := scattered(t, mountExt4(t, "^has_journal"))
	s := NewScatter(dir)
	groups := map[uint64]bool{}
	for i := range 8 * scatterFiles {
		groups[makeFile(t, s, dir, to, strconv.Itoa(i))] = true
	}
	if len(groups) < 3 {
		t.Errorf("the files of %d folders are in %d groups of 8", 8, len(groups))
	}
	if left := entries(t, dir); len(left) != 1 {
		t.Errorf("folders that stay: %q", left)
	}
}

// TestScatterSlowFiles: the folder of a file that takes long to write stays for it, and no longer.
func TestScatterSlowFiles(t *testing.T) {
	dir, to := scattered(t, mountExt4(t, "^has_journal"))
	s := NewScatter(dir)
	slow := filepath.Join(s.Next(), "slow")
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := 0
	turn := func() {
		for range scatterFiles {
			makeFile(t, s, dir, to, strconv.Itoa(made))
			made++
		}
	}
	turn()
	turn()
	if err := os.Rename(slow, filepath.Join(to, "slow")); err != nil {
		t.Fatal(err)
	}
	turn()
	if left := entries(t, dir); len(left) != 1 {
		t.Errorf("folders that stay: %q", left)
	}
}

// TestScatterTogether: concurrent callers have folders, and after a failed one the next files are
// made above.
func TestScatterTogether(t *testing.T) {
	dir, to := scattered(t, mountExt4(t, "^has_journal"))
	s := NewScatter(dir)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range scatterFiles {
				makeFile(t, s, dir, to, strconv.Itoa(i)+"-"+strconv.Itoa(j))
			}
		})
	}
	group.Wait()
	if n := len(entries(t, to)); n != 8*scatterFiles {
		t.Errorf("%d files were made", n)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range scatterFiles {
		s.Next()
	}
	if got := s.Next(); got != dir {
		t.Errorf("without its folder, files are made in %s", got)
	}
}

// TestScatterElsewhere: with a journal, and on other disks, all files are made in one folder.
func TestScatterElsewhere(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "scatter")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	for _, dir := range []string{mountExt4(t, "has_journal"), memory} {
		s := NewScatter(dir)
		for range 3 * scatterFiles {
			if got := s.Next(); got != dir {
				t.Fatalf("a file of %s is made in %s", dir, got)
			}
		}
	}
}
