package programs

import (
	"os/exec"
	"syscall"
	"testing"
)

// minding waits for the end of its input. At that time its parent's children are about to end, and
// may mount something until then.
const minding = `cat
for second in 1 2 3 4 5; do
	while read -r _ _ _ _ place _; do
		case $place in "$1"/*) umount -l "$place" ;; esac
	done < /proc/self/mountinfo
	sleep 1
done
rm -rf --one-file-system "$1"`

// mind starts a process that detaches all mounts below a folder, and removes the folder, if this
// process ends before the test does: it was killed, or has taken too long.
func mind(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", minding, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test
	_, err := cmd.StdinPipe()                            // closed with this process
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
