package worker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/vfs"
)

const smallDisk = 64 << 20

// newFarmOnSmallDisk returns a farm whose worker has a small disk, and a folder that is not on it.
func newFarmOnSmallDisk(t *testing.T) (f *farm, disk, elsewhere string) {
	t.Helper()
	needRoot(t)
	elsewhere, err := os.MkdirTemp("/var/tmp", "forerunner-room-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(elsewhere)) })
	disk = filepath.Join(elsewhere, "disk")
	check(t, os.Mkdir(disk, 0o755))
	check(t, unix.Mount("small", disk, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)))
	t.Cleanup(func() { check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{disk: filepath.Join(disk, "worker")}), disk, elsewhere
}

// newFarmOnDisk returns a farm whose worker has an ext4 of its own, and its folder.
func newFarmOnDisk(t *testing.T) (f *farm, disk string) {
	t.Helper()
	disk = newDisk(t, 256<<20, "mkfs.ext4", "-q")
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{disk: filepath.Join(disk, "worker"), breaks: true}), disk
}

// newDisk returns where a file system is mounted that mkfs has made in a file.
func newDisk(t *testing.T, size int64, mkfs ...string) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-disk-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, size))
	check(t, os.Mkdir(disk, 0o755))
	do(t, append(mkfs, image)...)
	do(t, "mount", "-o", "loop", image, disk)
	t.Cleanup(func() { check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	return disk
}

func do(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	check(t, err)
	defer file.Close()
	for _, size := range []int{1 << 20, 1 << 12, 1} {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// appears waits until there is a file of this name.
func appears(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
	}
	t.Fatalf("there is no %s", name)
}

func rests(r *remoteworker.SynchronizeRequest) bool {
	return r.GetPreferBeingIdle() && r.GetCurrentState().GetIdle() != nil
}

// TestFullDisk has an action fail because another process fills the disk. That must not be reported
// as its outcome: another worker must run the action, and this worker must take none until there is
// space.
func TestFullDisk(t *testing.T) {
	f, disk, elsewhere := newFarmOnSmallDisk(t)
	gate, ballast := filepath.Join(elsewhere, "gate"), filepath.Join(disk, "ballast")
	j := f.start(t, spec{shell: fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; head -c 100000 /dev/zero > out", gate), paths: []string{"out"}})
	j.reaches(t, "running")
	fill(t, ballast)
	check(t, os.WriteFile(gate, nil, 0o600))
	f.scheduler.heard(t, "a worker that rests", rests)
	select {
	case r := <-j.completed:
		t.Errorf("the action has a result: %v", r)
	default:
	}
	if why := f.worker.report().GetResting(); !strings.Contains(why, "the disk is full") {
		t.Errorf("it rests because %q", why)
	}
	check(t, os.Remove(ballast))
	f.assertGood(t)
	if why := f.worker.report().GetResting(); why != "" {
		t.Errorf("it works, and rests because %q", why)
	}
}

// TestDiskThatIsFullForAMoment: a result from a disk without space must not be reported, however
// soon there is space again and whatever the command says.
func TestDiskThatIsFullForAMoment(t *testing.T) {
	f, disk, elsewhere := newFarmOnSmallDisk(t)
	for i := range 5 {
		gate, written := filepath.Join(elsewhere, fmt.Sprint("gate", i)), filepath.Join(elsewhere, fmt.Sprint("written", i))
		j := f.start(t, spec{
			shell: fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; head -c 100000 /dev/zero > out 2> /dev/null; : > %s; "+
				"while [ -e %[2]s ]; do sleep 0.01; done; exit 0", gate, written),
			paths: []string{"out"},
		})
		j.reaches(t, "running")
		ballast := filepath.Join(disk, "ballast")
		fill(t, ballast)
		check(t, os.WriteFile(gate, nil, 0o600))
		appears(t, written)
		check(t, os.Remove(ballast))
		check(t, os.Remove(written))
		r := j.result(t)
		assertOK(t, r)
		if files := r.GetResult().GetOutputFiles(); len(files) != 1 || files[0].GetDigest().GetSizeBytes() >= 100000 {
			t.Fatalf("the disk was not full: %v", r)
		}
		if f.cached(t, j) != nil {
			t.Error("the action cache has an output that was cut short")
		}
	}
	f.assertGood(t)
}

// TestQuota: a result from a disk whose quota the command used up must not be reported, whether or
// not the command frees the space. The worker must then continue by itself.
func TestQuota(t *testing.T) {
	// A quota can be used up so fast that a busy machine does not look in time where there is little of it. So it is large,
	// and most of it is not free while a command uses up the rest.
	const left, reserved = 150 << 20, 2 << 30
	disk := newDisk(t, 4<<30, "mkfs.btrfs", "-q")
	limited := filepath.Join(disk, "limited")
	do(t, "btrfs", "quota", "enable", disk)
	do(t, "btrfs", "subvolume", "create", limited)
	do(t, "btrfs", "qgroup", "limit", fmt.Sprint(left+reserved), limited)
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{disk: filepath.Join(limited, "worker")})
	runs := 0
	writes := func(bytes int) (cached bool) {
		runs++
		j := f.start(t, spec{
			shell: fmt.Sprintf("{ head -c %d /dev/zero > scratch; n=$(wc -c < scratch); rm scratch; sync; sleep 1; sync; "+
				"echo $n > size; echo %d > out; } 2> /dev/null", bytes, runs),
			paths: []string{"size", "out"},
		})
		r := j.result(t)
		assertOK(t, r)
		size := f.read(t, r.GetResult().GetOutputFiles()[0].GetDigest())
		if whole := size == fmt.Sprintln(bytes); whole != (bytes < left) {
			t.Fatalf("of %d bytes it wrote %s", bytes, size)
		}
		return f.cached(t, j) != nil
	}
	for range 2 {
		ballast := filepath.Join(limited, "ballast")
		do(t, "fallocate", "-l", fmt.Sprint(reserved), ballast)
		if writes(left + 100<<20) {
			t.Error("the action cache has what a command made of a quota that was used up")
		}
		check(t, os.Remove(ballast))
		deadline := time.Now().Add(patience)
		for !writes(1 << 20) { // the machine may be too busy to look in time
			if time.Now().After(deadline) {
				t.Fatal("no result is cached where there is a quota")
			}
		}
	}
	f.assertGood(t)
}

// TestIdleWorkerHasFullDisk has a disk become full while a worker waits for work.
func TestIdleWorkerHasFullDisk(t *testing.T) {
	f, disk, _ := newFarmOnSmallDisk(t)
	f.scheduler.heard(t, "a worker that waits", func(r *remoteworker.SynchronizeRequest) bool {
		return !r.GetPreferBeingIdle() && r.GetCurrentState().GetIdle() != nil
	})
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	f.scheduler.heard(t, "a worker that rests", rests)
	check(t, os.Remove(ballast))
	f.assertGood(t)
}

// TestActionFillsDisk has an action fill the disk itself: it is told so, and the next one has room.
func TestActionFillsDisk(t *testing.T) {
	f, _, _ := newFarmOnSmallDisk(t)
	r := f.run(t, spec{shell: "cat /dev/zero > out", paths: []string{"out"}})
	said := strings.ToLower(r.GetStatus().GetMessage() + string(r.GetResult().GetStderrRaw()))
	if r.GetStatus().GetCode() == 0 && r.GetResult().GetExitCode() == 0 || !strings.Contains(said, "no space left") {
		t.Errorf("result: %v", r)
	}
	f.assertGood(t)
}

// TestStoreGivesWay has unused blobs fill the disk.
func TestStoreGivesWay(t *testing.T) {
	f, _, _ := newFarmOnSmallDisk(t)
	for i := range smallDisk / (1 << 20) {
		content := fmt.Appendf(make([]byte, 1<<20), "%d", i)
		check(t, f.local.PutBytes(t.Context(), digest.Of(digest.SHA256, content), content))
	}
	f.assertGood(t)
	if f.local.Stats().EvictedBlobs == 0 {
		t.Error("all blobs are still there")
	}
}

// TestReadOnlyDisk has a disk become read-only, as the kernel makes one that it found damaged.
func TestReadOnlyDisk(t *testing.T) {
	f, disk, _ := newFarmOnSmallDisk(t)
	f.scheduler.heard(t, "a worker that waits", func(r *remoteworker.SynchronizeRequest) bool {
		return !r.GetPreferBeingIdle() && r.GetCurrentState().GetIdle() != nil
	})
	d := digestOfBytes("kept")
	check(t, f.local.PutBytes(t.Context(), d, []byte("kept")))
	// A mount over the disk, since the file system itself has files that are open for writing.
	check(t, unix.Mount(disk, disk, "", unix.MS_BIND, ""))
	heal := sync.OnceFunc(func() { check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	t.Cleanup(heal)
	check(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	f.scheduler.heard(t, "a worker that rests", rests)
	if err := f.local.PutBytes(t.Context(), digestOfBytes("new"), []byte("new")); !errors.Is(err, cas.ErrUnwritable) {
		t.Errorf("a blob was put: %v", err)
	}
	if !f.local.Has(d) {
		t.Error("a blob was given up to make room")
	}
	heal()
	f.assertGood(t)
}

// assertNoResult has the action that j stands for go to another worker, and this one rest.
func (f *farm) assertNoResult(t *testing.T, j *job) {
	t.Helper()
	f.scheduler.heard(t, "a worker that rests", rests)
	select {
	case r := <-j.completed:
		t.Errorf("the action has a result: %v", r)
	default:
	}
}

// TestFailingDisk has the disk fail as ext4 does, which no longer says that it is read-only:
// neither a command that cannot write nor one that does not start has an outcome here.
func TestFailingDisk(t *testing.T) {
	for name, shell := range map[string]string{
		"a command that runs": "until [ -e /tmp/../gate ]; do sleep 0.01; done; echo x > out",
		"the next action":     "",
	} {
		t.Run(name, func(t *testing.T) {
			f, disk := newFarmOnDisk(t)
			f.assertGood(t)
			if shell == "" {
				do(t, "mount", "-o", "remount,abort", disk)
				f.assertNoResult(t, f.start(t, spec{shell: "echo x > out", paths: []string{"out"}}))
				if err := f.worker.Unfit(); err == nil {
					t.Error("the worker takes itself for fit")
				}
				return
			}
			gate := filepath.Join(t.TempDir(), "gate")
			j := f.start(t, spec{
				shell: fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; echo x > out", gate), paths: []string{"out"},
			})
			j.reaches(t, "running")
			do(t, "mount", "-o", "remount,abort", disk)
			check(t, os.WriteFile(gate, nil, 0o600))
			f.assertNoResult(t, j)
		})
	}
}

// TestMovedFolder moves each of the worker's folders away, and back. No check notices that.
func TestMovedFolder(t *testing.T) {
	for name, folder := range map[string]func(*farm) string{
		"store":           func(f *farm) string { return f.local.Dir() },
		"writable layers": func(f *farm) string { return f.roots.Folders()[1] },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{})
			f.assertGood(t)
			dir := folder(f)
			check(t, os.Rename(dir, dir+"-moved"))
			f.assertNoResult(t, f.start(t, spec{inputs: tree{"in": "x"}, shell: "cat in > out", paths: []string{"out"}}))
			check(t, os.Rename(dir+"-moved", dir))
			f.assertGood(t)
		})
	}
}

// TestFullMemory: a result that is due to too little memory must not be reported.
func TestFullMemory(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.FUSE, UpperMemory: 8 << 20})
	for shell, cached := range map[string]bool{
		"head -c 9M /dev/zero > out 2>/dev/null; exit 0": false, "head -c 6M /dev/zero > out": true,
		"head -c 9M /dev/zero > x; head -c 1M /dev/zero > out; sleep 0.3; rm x": false, // there is room at the end
	} {
		j := f.start(t, spec{shell: shell, paths: []string{"out"}})
		assertOK(t, j.result(t))
		if got := f.cached(t, j) != nil; got != cached {
			t.Errorf("%s: in the action cache: %t", shell, got)
		}
	}
}
