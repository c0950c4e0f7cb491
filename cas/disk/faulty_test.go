package disk

import (
	"bytes"
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
	"github.com/forerunner-build/forerunner/cas/scrub"
)

// TestWhatCannotBeOpened: a file that cannot be opened, for a reason of its own, is as damaged as one that cannot be read.
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
	used := s.verifier.Vouch()
	defer used.Close()
	used.Used(d)
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
	if err := os.RemoveAll(filepath.Join(s.files.dir, "aside")); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.AsideBlobs != 0 || got.AsideBytes != 0 {
		t.Errorf("%d are kept aside, of %d bytes, and somebody has removed them", got.AsideBlobs, got.AsideBytes)
	}
}

// TestResultsThatCannotBeRead: a result whose file fails to be read is given up, by who asks for it and by a scrub, and put again.
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
			k := keyOfAction("", d)
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
			path := a.files.path(keyOfAction("", d))
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

// TestDamagedInode opens a store one of whose files the file system refuses to look at.
func TestDamagedInode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	image, mount := filepath.Join(t.TempDir(), "image"), t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	run("truncate", "-s", "32M", image)
	run("mkfs.ext4", "-q", "-F", image)
	run("mount", "-o", "loop", image, mount)
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = unix.Unmount(mount, unix.MNT_DETACH)
		}
	})
	dir := filepath.Join(mount, "store")
	s, err := Open(dir, Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fine, bad := storePut(t, s, "fine"), storePut(t, s, "bad")
	var st unix.Stat_t
	if err := errors.Join(unix.Lstat(s.files.path(bad), &st), s.Close()); err != nil {
		t.Fatal(err)
	}
	run("umount", mount)
	mounted = false
	run("debugfs", "-w", "-R", fmt.Sprintf("set_inode_field <%d> mode 0170000", st.Ino), image)
	run("mount", "-o", "loop", image, mount)
	mounted = true
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
	run("umount", mount)
	mounted = false
}

// TestChangedBetweenTwoStarts: a store that is opened again knows which files have changed since it verified them.
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

// TestReadWhileSomebodyWrites: bytes that are read and hashed while somebody has their file mapped are right, and not for long,
// whoever reads them: what is written to a page that is dirty already changes no time.
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
			v := s.verifier.Vouch()
			defer v.Close()
			v.Used(d)
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
