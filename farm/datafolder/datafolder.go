package datafolder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/pause"
)

// format is the version of the data folder. A change that an older program would misread, or
// destroy, increments it; other changes do not.
const format = 1

// ownerFile is the locked file in the folder; it names the holder of the lock and the format.
const ownerFile = "forerunner.lock"

// A Folder is a data folder that this process has locked.
type Folder struct{ lock *os.File }

// Open makes the folder if needed, and locks it. If the process that has locked it is dead or dying,
// it waits until the kernel has unlocked the folder, for releasePatience at most. Errors name the
// folder, and the process that has locked it, or say what to do.
func Open(ctx context.Context, dir string) (*Folder, error) {
	if err := Make(dir); err != nil {
		return nil, fmt.Errorf("data folder: %w", Advised(err))
	}
	// A process that can open the file, even read-only, can lock it, too.
	const mode = 0o600
	lock, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, mode)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", Advised(err))
	}
	f := &Folder{lock: lock}
	if err := errors.Join(lock.Chmod(mode), f.take(ctx, dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *Folder) take(ctx context.Context, dir string) error {
	limited, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	for {
		err := f.tryTake(dir)
		if used := (*usedError)(nil); !errors.As(err, &used) || !used.owner.isEnding() {
			return err
		}
		if over := pause.For(limited, releasePause); over != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// tryTake is take without a wait; a usedError means that a process has locked the folder.
func (f *Folder) tryTake(dir string) error {
	locked := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	found, owner, err := read(f.lock)
	switch {
	case errors.Is(locked, unix.EWOULDBLOCK):
		return &usedError{dir, owner}
	case locked != nil:
		return fmt.Errorf("data folder %s: lock: %w", dir, locked)
	}
	if err := known(dir, found, err); err != nil {
		return err
	}
	return f.write(found)
}

// known returns an error if the format of a folder, or the error when it was read, is none that this
// program knows.
func known(dir string, found int, err error) error {
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	if found > format {
		return fmt.Errorf("data folder %s is of a newer version of Forerunner: its format is %d, and this program knows %d; start that version again, or choose another --data",
			dir, found, format)
	}
	return nil
}

// Check returns the error of Open for a folder of a newer version. It changes nothing, and finds
// nothing wrong with a folder that it cannot read.
func Check(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	found, _, err := read(file)
	return known(dir, found, err)
}

// write writes the format, if the file has another one, and the owner of the folder. The owner is a
// hint: with a full disk it is omitted.
func (f *Folder) write(found int) error {
	text := fmt.Sprintf("format %d\n", format)
	if found != format {
		if _, err := f.lock.WriteAt([]byte(text), 0); err != nil {
			return fmt.Errorf("data folder: %w", Advised(err))
		}
	}
	owner := fmt.Sprintf("process %d %s\n", os.Getpid(), filepath.Base(os.Args[0]))
	if err := f.lock.Truncate(int64(len(text))); err == nil { // do not name the previous owner
		_, _ = f.lock.WriteAt([]byte(owner), int64(len(text)))
	}
	return nil
}

// read returns the format in the file, 0 if there is none, and the owner of the folder.
func read(file io.ReaderAt) (found int, by owner, err error) {
	lines := bufio.NewScanner(io.NewSectionReader(file, 0, 4<<10))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "format":
			if _, err := fmt.Sscan(value, &found); err != nil {
				return 0, by, fmt.Errorf("%s: format %q", ownerFile, value)
			}
		case "process":
			pid, program, _ := strings.Cut(value, " ")
			by.program = program
			by.pid, _ = strconv.Atoi(pid) // 0: it is unknown
		}
	}
	return found, by, lines.Err()
}

// Close unlocks the folder.
func (f *Folder) Close() error { return f.lock.Close() }
