package image

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeasedFile: a command that has a lease of a file keeps nobody waiting who looks at what was
// opened. Nobody knows then what was opened; what comes behind it is looked at.
func TestLeasedFile(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Skip(err)
	}
	defer w.close()
	for _, size := range []int{watchBuffer, eventHead} {
		if w.bytes = size; size == eventHead { // as on an older kernel
			must(t, unix.Close(w.fd))
			w.fd, err = unix.FanotifyInit(groupFlags, fileFlags)
			must(t, err)
		}
		dir := t.TempDir()
		for _, name := range []string{"before", "leased", "behind"} {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD, unix.FAN_OPEN, unix.AT_FDCWD, path))
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			defer file.Close()
			if name == "leased" {
				_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				must(t, err)
			}
		}
		v := &View{}
		w.mu.Lock()
		w.roots[fsid{1, 1}] = v
		w.mu.Unlock()
		w.drain()
		if left, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ); !v.blind.Load() || left != 0 || err != nil {
			t.Errorf("with a buffer of %d bytes: blind %t, %d bytes left, %v", size, v.blind.Load(), left, err)
		}
		w.mu.Lock()
		clear(w.roots)
		w.mu.Unlock()
	}
}
