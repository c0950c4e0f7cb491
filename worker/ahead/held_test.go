package ahead

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestHeld: nothing is fetched of an action that may not be run, until it is known that it will be.
func TestHeld(t *testing.T) {
	for _, known := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			store, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			group, err := fetch.NewGroup(store, fetch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s := &far{blobs: map[digest.Digest][]byte{}, ways: map[digest.Digest]int{}}
			files := map[string]digest.Digest{}
			root := s.tree(t, rand.New(rand.NewPCG(20, 8)), "", 2, files)
			action := prefetch.Action{Digest: digest.Of(digest.SHA256, []byte("action"))}
			profiles := prefetch.NewProfiles(&memory{records: map[record.Key][]byte{}}, prefetch.ProfilesOptions{})
			if known {
				var ran prefetch.Recorder
				for path := range files {
					ran.Read(path, vfs.File)
				}
				profiles.Learn(t.Context(), action, ran.Hashes(), prefetch.Inputs{})
			}
			for _, run := range []bool{false, true} {
				through := group.Through(s)
				f := Start(t.Context(), Spec{Action: action, Root: root, Inputs: through, Profiles: profiles, Held: true})
				f.KnowCommand([]string{"tool"}, ".")
				time.Sleep(time.Minute)
				if n, _ := through.Fetched(); n > 0 {
					t.Errorf("%d blobs were fetched of an action that may not be run", n)
				}
				if run {
					f.Go()
					time.Sleep(time.Minute)
				}
				if f.End() != run {
					t.Errorf("something could be fetched: %t, want %t", !run, run)
				}
				if n, _ := through.Fetched(); n > 0 != run {
					t.Errorf("%d blobs were fetched; was it run: %t", n, run)
				}
			}
			group.Close()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHere: nothing is fetched, or looked for, of an action whose storage is the store; but its reads
// are remembered.
func TestHere(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		group, err := fetch.NewGroup(store, fetch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &far{blobs: map[digest.Digest][]byte{}, ways: map[digest.Digest]int{}}
		files := map[string]digest.Digest{}
		root := s.tree(t, rand.New(rand.NewPCG(20, 8)), "", 2, files)
		action := prefetch.Action{Digest: digest.Of(digest.SHA256, []byte("action"))}
		profiles := prefetch.NewProfiles(&memory{records: map[record.Key][]byte{}}, prefetch.ProfilesOptions{})
		through := group.Through(s)
		f := Start(t.Context(), Spec{Action: action, Root: root, Inputs: through, Profiles: profiles, Here: true})
		f.KnowCommand([]string{"tool"}, ".")
		time.Sleep(time.Minute)
		for path := range files {
			f.Hook()(path, vfs.File)
		}
		if !f.End() {
			t.Error("the action counts as one that did not run")
		}
		if n, _ := through.Fetched(); n > 0 {
			t.Errorf("%d blobs were fetched", n)
		}
		f.Learn(t.Context())
		if known, origin := profiles.Find(t.Context(), action); known == nil {
			t.Errorf("its reads are forgotten: %v", origin)
		}
		group.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
