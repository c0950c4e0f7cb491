package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Program opens this program for a launcher to execute by the descriptor. Until a command executes its own program, it has that of its
// launcher, by /proc/self/exe, and may execute that again: by a mount of its own here, which is read-only, so that not even
// the machine's root can change its mode, owner or bytes. An error says what Unavailable wants to know.
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
