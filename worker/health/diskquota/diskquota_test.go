package diskquota

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mounted returns where a file system of 300 MiB is mounted that mkfs has made. The test is skipped
// if the kernel does not know options.
func mounted(t *testing.T, options string, mkfs ...string) string {
	t.Helper()
	if _, err := exec.LookPath(mkfs[0]); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatalf("needs root and %s: %v", mkfs[0], err)
		}
		t.Skipf("needs root and %s: %v", mkfs[0], err)
	}
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, 300<<20))
	check(t, os.Mkdir(disk, 0o755))
	do(t, append(mkfs, image)...)
	if out, err := exec.Command("mount", "-o", "loop"+options, image, disk).CombinedOutput(); err != nil {
		if options != "" {
			t.Skipf("this kernel does not mount with %q: %s", options, out)
		}
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() { check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	return disk
}

func do(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// spaces returns those that there are now, by whose they are.
func spaces(t *testing.T, dir string, owners ...folder.Owner) map[string]Space {
	t.Helper()
	found, err := New(dir, owners).Spaces()
	check(t, err)
	all := map[string]Space{}
	for _, r := range found {
		all[r.Of] = r
	}
	return all
}

// write writes that many bytes to a file of owner.
func write(t *testing.T, file string, bytes int, owner folder.Owner) {
	t.Helper()
	f, err := os.Create(file)
	check(t, err)
	defer f.Close()
	check(t, f.Chown(int(owner.UID), int(owner.GID)))
	_, err = f.Write(make([]byte, bytes))
	check(t, err)
}

// TestBtrfs: the groups of a subvolume and those above are counted as they are written to, before
// anything is on the disk.
func TestBtrfs(t *testing.T) {
	disk := mounted(t, "", "mkfs.btrfs", "-q")
	if found := spaces(t, disk); len(found) > 0 {
		t.Errorf("without quotas there are %v", found)
	}
	own, other := filepath.Join(disk, "own"), filepath.Join(disk, "other")
	do(t, "btrfs", "quota", "enable", disk)
	for _, dir := range []string{own, other} {
		do(t, "btrfs", "subvolume", "create", dir)
	}
	if found := spaces(t, own); len(found) > 0 {
		t.Errorf("without bounds there are %v", found)
	}
	for _, id := range []string{"1/100", "1/200", "2/100"} {
		do(t, "btrfs", "qgroup", "create", id, disk)
	}
	do(t, "btrfs", "qgroup", "assign", "--no-rescan", "0/256", "1/100", disk)
	do(t, "btrfs", "qgroup", "assign", "--no-rescan", "1/100", "2/100", disk)
	do(t, "btrfs", "qgroup", "assign", "--no-rescan", "0/257", "1/200", disk)
	for id, size := range map[string]string{"0/256": "100M", "0/257": "10M", "1/100": "90M", "1/200": "9M", "2/100": "80M"} {
		do(t, "btrfs", "qgroup", "limit", size, id, disk)
	}
	before := spaces(t, own)
	const written = 30 << 20
	write(t, filepath.Join(own, "file"), written, folder.ProcessOwner())
	after := spaces(t, own)
	if len(before) != 3 || len(after) != 3 {
		t.Errorf("there are %v, then %v", before, after)
	}
	for id, most := range map[string]int64{"0/256": 100 << 20, "1/100": 90 << 20, "2/100": 80 << 20} {
		b, a := before["btrfs quota group "+id], after["btrfs quota group "+id]
		if used := b.Free - a.Free; b.MostBytes != most || used < written || used > written+4<<20 || !a.Late || a.MostFiles != Unbounded {
			t.Errorf("%s: %v, then %v", id, b, a)
		}
	}
	check(t, unix.Unlink(filepath.Join(own, "file")))
	do(t, "btrfs", "qgroup", "limit", "none", "0/256", disk)
	if found := spaces(t, own); len(found) != 2 {
		t.Errorf("when one bound is gone there are %v", found)
	}
	do(t, "btrfs", "quota", "disable", disk)
	if found := spaces(t, own); len(found) > 0 {
		t.Errorf("when quotas are off there are %v", found)
	}
}

// limitUser gives an owner's user a bound.
func limitUser(t *testing.T, dir string, kind int, id uint32, hard, files uint64) {
	t.Helper()
	const setQuota, limits = 0x800008, 1 | 4 // Q_SETQUOTA, QIF_BLIMITS|QIF_ILIMITS
	d, err := os.Open(dir)
	check(t, err)
	defer d.Close()
	u := usage{bytesHard: hard / blockBytes, filesHard: files, valid: limits}
	check(t, quotactl(d, setQuota, kind, id, unsafe.Pointer(&u)))
}

// TestAccounts: quotas of users and groups count for the owners that are named, and for the
// process.
func TestAccounts(t *testing.T) {
	disk := mounted(t, ",usrquota,grpquota", "mkfs.ext4", "-q", "-O", "quota", "-E", "quotatype=usrquota:grpquota")
	one, two := folder.Owner{UID: 12345, GID: 23456}, folder.Owner{UID: 12346, GID: 23456}
	if found := spaces(t, disk, one, two); len(found) > 0 {
		t.Errorf("without bounds there are %v", found)
	}
	limitUser(t, disk, ofUsers, one.UID, 50<<20, 0)
	limitUser(t, disk, ofGroups, one.GID, 0, 100)
	limitUser(t, disk, ofUsers, 12347, 50<<20, 0)
	const written = 30 << 20
	write(t, filepath.Join(disk, "file"), written, one)
	found := spaces(t, disk, one, two)
	user, group := found["disk quota of user 12345"], found["disk quota of group 23456"]
	if len(found) != 2 || !user.Foreign || user.MostBytes != 50<<20 || user.MostFiles != Unbounded || user.Late ||
		group.MostBytes != Unbounded || group.MostFiles != 100 || group.Files != 99 {
		t.Errorf("there are %v", found)
	}
	if used := user.MostBytes - user.Free; used < written || used > written+1<<20 {
		t.Errorf("of %d bytes %d are used", user.MostBytes, used)
	}
	if found := spaces(t, disk); len(found) > 0 {
		t.Errorf("for nobody but root there are %v", found)
	}
	limitUser(t, disk, ofUsers, 0, 200<<20, 0)
	if found := spaces(t, disk); len(found) != 1 || found["disk quota of user 0"].Foreign {
		t.Errorf("for root there are %v", found)
	}
}

// TestNone: a folder without quotas is nothing to speak of, one that cannot be opened is.
func TestNone(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		dir      string
		warnings int
	}{{dir, 0}, {filepath.Join(dir, "none"), 1}} {
		core, logs := observer.New(zap.WarnLevel)
		New(c.dir, nil).Warn(zap.New(core))
		if logs.Len() != c.warnings {
			t.Errorf("%s: %v", c.dir, logs.All())
		}
	}
}

func TestBound(t *testing.T) {
	for name, c := range map[string]struct {
		hard, soft, until uint64
		most              int64
		ok                bool
	}{
		"none":                     {0, 0, 0, 0, false},
		"hard":                     {10, 0, 0, 10, true},
		"soft, not exceeded":       {10, 5, 0, 10, true},
		"soft, for a while":        {10, 5, 101, 10, true},
		"soft, for too long":       {10, 5, 100, 5, true},
		"only soft, for a while":   {0, 5, 101, 0, false},
		"only soft, for too long":  {0, 5, 99, 5, true},
		"more than there could be": {1 << 63, 0, 0, Unbounded, true},
	} {
		if most, ok := bound(c.hard, c.soft, c.until, 100); most != c.most || ok != c.ok {
			t.Errorf("%s: %d, %t", name, most, ok)
		}
	}
}

func TestParseGroup(t *testing.T) {
	for name, want := range map[string]string{"0_257": "0/257", "1_100": "1/100", "mode": "", "1_x": "", "70000_1": ""} {
		id, ok := parseGroup(name)
		if ok != (want != "") || ok && id.String() != want {
			t.Errorf("%s: %s, %t", name, id, ok)
		}
	}
	if strings.Contains(Space{Of: "x", MostBytes: Unbounded, MostFiles: Unbounded}.String(), "left") {
		t.Error("what is not bounded is said to be left")
	}
}
