package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
	"github.com/forerunner-build/forerunner/cas/scrub"
)

// TestWhatCannotBeOpened: a file that cannot be opened, for a reason of its own, is as damaged as
// one that cannot be read.
func TestWhatCannotBeOpened(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "content")
	if err := os.Remove(s.files.path(d)); err != nil {
		t.Fatal(err)
	}
	putSocket(t, s.files.path(d))
	if _, err := os.Open(s.files.path(d)); !errors.Is(err, unix.ENXIO) {
		t.Fatalf("open: %v", err)
	}
	used := using(t, s, d)
	if err := s.PutBytes(t.Context(), d, []byte("content")); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().DamagedBlobs; n != 1 {
		t.Errorf("%d damaged blobs", n)
	}
	wantDamaged(t, used.Wait(t.Context()), d)
	storeWantConsistent(t, s)
	if got := s.Stats(); got.AsideBlobs != 1 {
		t.Errorf("%d are kept aside", got.AsideBlobs)
	}
	if err := os.RemoveAll(filepath.Join(s.files.Dir, "aside")); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.AsideBlobs != 0 || got.AsideBytes != 0 {
		t.Errorf("%d are kept aside, of %d bytes, and somebody has removed them", got.AsideBlobs, got.AsideBytes)
	}
}

// TestResultsThatCannotBeRead: a result whose file cannot be read is removed, by a reader or by a
// scrub, and can be stored again.
func TestResultsThatCannotBeRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file that fails")
	}
	for name, look := range map[string]func(a *Actions, d digest.Digest) error{
		"asked for": func(a *Actions, d digest.Digest) error {
			if _, err := a.Get(t.Context(), "", d); !errors.Is(err, cas.ErrNotFound) {
				return fmt.Errorf("get: %w", err)
			}
			return nil
		},
		"scrubbed": func(a *Actions, d digest.Digest) error {
			k := keyOfAction("", d).Digest
			verdict, err := resultTarget{a}.Check(t.Context(), actionPath(k), time.Time{}, new(scrub.Reader))
			if err != nil || verdict != scrub.Damaged {
				return fmt.Errorf("verdict %v, %w", verdict, err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, d := storeOpenActions(t, t.TempDir(), 0), storeAction(1)
			storePutResult(t, a, "", d, 1)
			path := a.files.path(keyOfAction("", d).Digest)
			// It has the size of a page, and reading it fails.
			if err := unix.Mount("/sys/class/net/lo/speed", path, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			err := look(a, d)
			if err := errors.Join(err, unix.Unmount(path, unix.MNT_DETACH)); err != nil {
				t.Fatal(err)
			}
			if code := storeExitCode(t, a, "", d); code != -1 {
				t.Errorf("exit code %d of a result that was given up", code)
			}
			storePutResult(t, a, "", d, 2)
			if code := storeExitCode(t, a, "", d); code != 2 {
				t.Errorf("exit code %d afterwards", code)
			}
		})
	}
}

// A faultyDisk is an ext4 file system in a file.
type faultyDisk struct {
	t            *testing.T
	image, mount string
	mounted      bool
}

// newFaultyDisk makes one, and mounts it.
func newFaultyDisk(t *testing.T) *faultyDisk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	d := &faultyDisk{t: t, image: filepath.Join(t.TempDir(), "image"), mount: t.TempDir()}
	d.run("truncate", "-s", "32M", d.image)
	d.run("mkfs.ext4", "-q", "-F", d.image)
	d.attach()
	t.Cleanup(d.detach)
	return d
}

func (d *faultyDisk) run(args ...string) {
	d.t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(d.t.Context()), args[0], args[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

func (d *faultyDisk) attach() {
	d.t.Helper()
	d.run("mount", "-o", "loop", d.image, d.mount)
	d.mounted = true
}

func (d *faultyDisk) detach() {
	d.t.Helper()
	if d.mounted {
		d.run("umount", d.mount)
		d.mounted = false
	}
}

// spoil sets a field of the inode of path with debugfs. The file must be closed.
func (d *faultyDisk) spoil(path, field, value string) {
	d.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		d.t.Fatal(err)
	}
	d.renew()
	d.run("debugfs", "-w", "-R", fmt.Sprintf("set_inode_field <%d> %s %s", st.Ino, field, value), d.image)
	d.attach()
}

// renew unmounts the disk and has the next attach mount a copy. Another process may hold a mount
// namespace with the present mount, and then the kernel keeps the inodes of this image.
func (d *faultyDisk) renew() {
	d.t.Helper()
	d.run("fsfreeze", "--freeze", d.mount) // which empties the journal
	present := d.image
	d.image += "-next"
	d.run("cp", "--sparse=always", present, d.image)
	d.run("fsfreeze", "--unfreeze", d.mount)
	d.detach()
}

// TestDamagedFolder opens stores one of whose folders the file system refuses to look at, cannot
// list, or has made a file of: its blobs are missing, and can come again.
func TestDamagedFolder(t *testing.T) {
	for name, spoil := range map[string]func(disk *faultyDisk, folder string){
		"refused": func(disk *faultyDisk, folder string) { disk.spoil(folder, "block[0]", "0") },
		"a file":  func(disk *faultyDisk, folder string) { disk.spoil(folder, "mode", "0100644") },
	} {
		t.Run(name, func(t *testing.T) {
			disk := newFaultyDisk(t)
			dir := filepath.Join(disk.mount, "store")
			s := storeOpen(t, dir, Options{})
			fine, bad := storePut(t, s, "fine"), storePut(t, s, "bad")
			if filepath.Dir(s.files.path(fine)) == filepath.Dir(s.files.path(bad)) {
				t.Fatal("they are in one folder")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			spoil(disk, filepath.Dir(s.files.path(bad)))
			for range 2 {
				s, err := Open(dir, Options{MaxBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := s.ReadBlob(t.Context(), fine); err != nil || string(got) != "fine" {
					t.Errorf("%q, %v", got, err)
				}
				if s.Has(bad) {
					t.Error("it is there")
				}
				if err := s.PutBytes(t.Context(), bad, []byte("bad")); err != nil {
					t.Error(err)
				}
				s.Evict(1 << 20)
				if err := errors.Join(s.PutBytes(t.Context(), fine, []byte("fine")), s.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestLeftBehind: a crash while folders were moved to a new group, from which one has to stay,
// loses none.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	first, second := storePut(t, s, "first"), storePut(t, s, "second")
	moved, group := filepath.Dir(s.files.path(first)), filepath.Dir(filepath.Dir(s.files.path(first)))
	if err := errors.Join(s.Close(), os.Mkdir(folder.FreshGroup(group), 0o700),
		os.Rename(moved, filepath.Join(folder.FreshGroup(group), filepath.Base(moved)))); err != nil {
		t.Fatal(err)
	}
	if s = storeOpen(t, dir, Options{}); !s.Has(first) || !s.Has(second) {
		t.Error("a blob is missing")
	}
	if err := errors.Join(s.Close(), os.Rename(group, folder.FreshGroup(group))); err != nil {
		t.Fatal(err)
	}
	if s = storeOpen(t, dir, Options{}); !s.Has(first) || !s.Has(second) {
		t.Error("a blob is missing")
	}
}

// TestStuckAtTheStart: a damaged file that cannot be removed does not keep a store from opening.
func TestStuckAtTheStart(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	d := storePut(t, s, "content")
	path := s.files.path(d)
	if err := errors.Join(s.Close(), os.Truncate(path, 3)); err != nil {
		t.Fatal(err)
	}
	letGo := holdFile(t, path)
	s = storeOpen(t, dir, Options{})
	if err := s.PutBytes(t.Context(), d, []byte("content")); !errors.Is(err, cas.ErrUnwritable) {
		t.Errorf("put: %v", err)
	}
	letGo()
	if err := s.PutBytes(t.Context(), d, []byte("content")); err != nil {
		t.Error(err)
	}
}

// TestDamagedInode opens a store one of whose files the file system refuses to look at.
func TestDamagedInode(t *testing.T) {
	disk := newFaultyDisk(t)
	dir := filepath.Join(disk.mount, "store")
	s, err := Open(dir, Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fine, bad := storePut(t, s, "fine"), storePut(t, s, "bad")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	disk.spoil(s.files.path(bad), "mode", "0170000")
	if s, err = Open(dir, Options{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ReadBlob(t.Context(), fine); err != nil || string(got) != "fine" {
		t.Errorf("%q, %v", got, err)
	}
	if s.Has(bad) {
		t.Error("it is there")
	}
	if err := s.PutBytes(t.Context(), bad, []byte("bad")); !errors.Is(err, cas.ErrUnwritable) {
		t.Errorf("put: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestChangedBetweenTwoStarts: a store that is opened again knows which files have changed since it
// verified them.
func TestChangedBetweenTwoStarts(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	d, fine := storePut(t, s, "a blob"), storePut(t, s, "another")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rot(t, s, d)
	s = storeOpen(t, dir, Options{})
	s.notes.loading.Wait()
	missing, err := s.Of("").FindUnsound(t.Context(), []digest.Digest{d, fine}, false)
	if err != nil || len(missing) != 1 || missing[0] != d {
		t.Errorf("missing %v, %v", missing, err)
	}
}

// TestReadWhileSomebodyWrites: another process has a file mapped while the file is read and hashed.
// The bytes are right, but may not stay so for any reader, because a write to a page that is
// already dirty changes no time.
func TestReadWhileSomebodyWrites(t *testing.T) {
	readBlob := func(t *testing.T, s *Store, d digest.Digest) error {
		_, err := s.ReadBlob(t.Context(), d)
		return err
	}
	for name, c := range map[string]struct {
		repeat int // of six bytes
		read   func(t *testing.T, s *Store, d digest.Digest) error
	}{
		"verified": {100, func(t *testing.T, s *Store, d digest.Digest) error { return s.verifier.Verify(t.Context(), d) }},
		"small":    {100, readBlob},
		"large":    {smallBlob, readBlob},
		"peeked at": {100, func(t *testing.T, s *Store, d digest.Digest) error {
			_, err := s.Peek(func(digest.Digest) {}).ReadBlob(t.Context(), d)
			return err
		}},
		"sent": {100, func(t *testing.T, s *Store, d digest.Digest) error {
			file, err := s.OpenBlob(t.Context(), d)
			if err != nil {
				return err
			}
			defer file.Close()
			sound, err := s.verifier.Reading(d, file)
			if err == nil {
				sound()
			}
			return err
		}},
		"scrubbed": {100, func(t *testing.T, s *Store, _ digest.Digest) error {
			if st := scrubOnce(t, s, nil); st.Damaged != 0 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			content := bytes.Repeat([]byte("right "), c.repeat)
			d := storePut(t, s, string(content))
			mapped := mapBlob(t, s, d)
			mapped[0] = 'X'
			mapped[0] = 'r'
			if err := c.read(t, s, d); err != nil {
				t.Fatal(err)
			}
			mapped[0] = 'X'
			v := using(t, s, d)
			wantDamaged(t, v.Wait(t.Context()), d)
		})
	}
}

// mapBlob maps the file of d for writing until the test ends.
func mapBlob(t *testing.T, s *Store, d digest.Digest) []byte {
	t.Helper()
	path := s.files.path(d)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(d.SizeBytes()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mapped); err != nil {
			t.Error(err)
		}
	})
	return mapped
}
