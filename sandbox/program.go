package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Program opens this program for a launcher, which executes it by the descriptor. Until a command
// executes its own program, its program is that of its launcher, through /proc/self/exe, which it
// may execute again. So the descriptor is of a read-only mount, and not even the machine's root can
// change the file's mode, owner or bytes. The error is one for Unavailable.
func Program() (*os.File, error) {
	const path = "/proc/self/exe"
	fd, err := openTree(path)
	if err != nil {
		return nil, fmt.Errorf("make a mount of the program: %w", err)
	}
	program := os.NewFile(uintptr(fd), path)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: noMore}); err != nil {
		_ = program.Close()
		return nil, fmt.Errorf("make a mount of the program read-only: %w", err)
	}
	return program, nil
}
