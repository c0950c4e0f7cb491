package disk

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// immutable is FS_IMMUTABLE_FL of ioctl_iflags(2).
const immutable = 0x10

// holdFile makes a file immutable, so that it cannot be moved or removed.
func holdFile(t *testing.T, path string) (letGo func()) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skip("only root makes files immutable:", err)
		}
		storeSkip(t, "no immutable files here: "+err.Error())
	}
	letGo = func() { _ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	t.Cleanup(func() {
		letGo()
		_ = file.Close()
	})
	return letGo
}

// TestStuckFile: reads of a file that the store gave up but could not remove are not verified.
func TestStuckFile(t *testing.T) {
	ctx := t.Context()
	for name, giveUp := range map[string]func(t *testing.T, s *Store, d digest.Digest){
		"damaged": func(t *testing.T, s *Store, d digest.Digest) {
			if err := s.verifier.Verify(ctx, d); !errors.Is(err, cas.ErrCorrupt) {
				t.Fatal(err)
			}
		},
		"evicted": func(_ *testing.T, s *Store, _ digest.Digest) { s.Evict(1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "content")
			rot(t, s, d)
			letGo := holdFile(t, s.files.path(d))
			giveUp(t, s, d)
			if s.Has(d) {
				t.Fatal("the store still has it")
			}
			for range 2 {
				v := s.verifier.Vouch()
				v.Used(d)
				wantDamaged(t, v.Wait(ctx), d)
				v.Close()
			}
			if err := s.PutBytes(ctx, d, []byte("content")); !errors.Is(err, cas.ErrUnwritable) {
				t.Errorf("put: %v", err)
			}
			used := s.verifier.Vouch()
			used.Used(d)
			letGo()
			if err := s.PutBytes(ctx, d, []byte("content")); err != nil {
				t.Fatal(err)
			}
			wantDamaged(t, used.Wait(ctx), d) // it may have read the old one
			used.Close()
			v := s.verifier.Vouch()
			v.Used(d)
			wantVouched(t, v)
			v.Close()
			storeWantConsistent(t, s)
		})
	}
}

// TestStuckFileIsTakenAway: when it can be, the next reader has it taken away.
func TestStuckFileIsTakenAway(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "content")
	rot(t, s, d)
	letGo := holdFile(t, s.files.path(d))
	if err := s.verifier.Verify(t.Context(), d); !errors.Is(err, cas.ErrCorrupt) {
		t.Fatal(err)
	}
	letGo()
	v := s.verifier.Vouch()
	v.Used(d)
	wantDamaged(t, v.Wait(t.Context()), d)
	v.Close()
	if _, err := os.Lstat(s.files.path(d)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	v = s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	wantVouched(t, v)
}
