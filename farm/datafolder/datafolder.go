package datafolder

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// format counts the ways in which programs have kept things in the folder. A change that an older program would misread, or
// destroy, takes the next number; what it cannot misread needs none.
const format = 1

// ownerFile is the file in the folder that is locked, and says who holds the lock and what the format is.
const ownerFile = "forerunner.lock"

// A Folder is a data folder that this process has for itself.
type Folder struct{ lock *os.File }

// Open makes the folder if need be, and takes it. What fails names the folder, and the process that has it.
func Open(dir string) (*Folder, error) {
	if err := Make(dir); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// Who can open the file, if only to read it, can lock it, too.
	const mode = 0o600
	lock, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	f := &Folder{lock: lock}
	if err := errors.Join(lock.Chmod(mode), f.take(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *Folder) take(dir string) error {
	locked := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	found, owner, err := read(f.lock)
	switch {
	case errors.Is(locked, unix.EWOULDBLOCK):
		return fmt.Errorf("data folder %s is in use by another process%s", dir, owner)
	case locked != nil:
		return fmt.Errorf("data folder %s: lock: %w", dir, locked)
	case err != nil:
		return fmt.Errorf("data folder %s: %w", dir, err)
	case found > format:
		return fmt.Errorf("data folder %s is of a newer version of Forerunner: its format is %d, and this program knows %d; start that version again, or choose another --data",
			dir, found, format)
	}
	return f.write(found)
}

// write says what the format is, if the file named another one, and whose the folder is now. That is a hint: without room for
// it on the disk nobody is named.
func (f *Folder) write(found int) error {
	text := fmt.Sprintf("format %d\n", format)
	if found != format {
		if _, err := f.lock.WriteAt([]byte(text), 0); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	owner := fmt.Sprintf("process %d %s\n", os.Getpid(), filepath.Base(os.Args[0]))
	if err := f.lock.Truncate(int64(len(text))); err == nil { // nobody is taken for the one who had it before
		_, _ = f.lock.WriteAt([]byte(owner), int64(len(text)))
	}
	return nil
}

// read returns the format that the file names, 0 if it names none, and who has the folder, such as ": 17 (forerunner)".
func read(file io.Reader) (found int, owner string, err error) {
	lines := bufio.NewScanner(io.LimitReader(file, 4<<10))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "format":
			if _, err := fmt.Sscan(value, &found); err != nil {
				return 0, owner, fmt.Errorf("%s: format %q", ownerFile, value)
			}
		case "process":
			pid, program, _ := strings.Cut(value, " ")
			owner = fmt.Sprintf(": %s (%s)", pid, program)
		}
	}
	return found, owner, lines.Err()
}

// Close lets others have the folder.
func (f *Folder) Close() error { return f.lock.Close() }
