package farm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without a sandbox commands of another user must get to their input roots.
func TestUserWithoutASandbox(t *testing.T) {
	data, err := os.MkdirTemp("/var/tmp", "farm-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	closed := filepath.Join(data, "closed")
	if err := os.Mkdir(closed, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode  os.FileMode // of data
		w     Worker
		fault string
	}{
		{0o700, Worker{}, ""},
		{0o700, Worker{Network: networkOff}, "--network=off"},
		{0o711, Worker{User: "5-6"}, ""},
		{0o700, Worker{User: "5-6"}, "pass through " + data + " to"},
		{0o711, Worker{User: "5-6", Mount: filepath.Join(closed, "new/mount")}, "pass through " + closed + " to"},
	} {
		if err := os.Chmod(data, c.mode); err != nil {
			t.Fatal(err)
		}
		c.w.Data = data
		err := (&Started{w: &c.w}).doWithoutSandbox()
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("mode %v, %+v: %v", c.mode, c.w, err)
		}
	}
}
