package scrub

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestTornPositionIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scrub")
	now := time.Now()
	at := position{Began: now.Add(-time.Hour), LastWhole: now.Add(-time.Minute), Target: 1, Shard: "sha256/77", Files: 7}
	if err := at.store(path); err != nil {
		t.Fatal(err)
	}
	if got := load(path, now); got.Shard != at.Shard || got.Files != 7 || !got.Began.Equal(at.Began) {
		t.Errorf("got %+v", got)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		flipped := slices.Clone(whole)
		flipped[i] ^= 1
		for _, b := range [][]byte{whole[:i], flipped} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := load(path, now); got != (position{}) {
				t.Fatalf("%q is taken for %+v", b, got)
			}
		}
	}
}

// TestPositionOfTheFutureIsNone: a pass that begins or ends in the future would not run until then,
// and it would be unknown what it has read.
func TestPositionOfTheFutureIsNone(t *testing.T) {
	now := time.Now()
	past, future := now.Add(-time.Hour), now.Add(time.Second)
	for name, c := range map[string]struct {
		at    position
		taken bool
	}{
		"past":       {position{Began: past, Ended: past, LastWhole: past, Files: 7}, true},
		"now":        {position{Began: now, Ended: now, LastWhole: now, Files: 7}, true},
		"begins":     {position{Began: future, LastWhole: past, Files: 7}, false},
		"ends":       {position{Began: past, Ended: future, LastWhole: past, Files: 7}, false},
		"last whole": {position{Began: past, Ended: past, LastWhole: future, Files: 7}, false},
	} {
		path := filepath.Join(t.TempDir(), "scrub")
		if err := c.at.store(path); err != nil {
			t.Fatal(err)
		}
		if got := load(path, now); (got.Files == 7) != c.taken || !c.taken && got != (position{}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestOlderPosition: older files name the target differently. A pass must continue where it
// stopped.
func TestOlderPosition(t *testing.T) {
	now := time.Now()
	path := filepath.Join(t.TempDir(), "scrub")
	stored := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[9:])
	}
	at := position{Began: now.Add(-time.Hour).UTC(), Target: 2, Shard: "blobs/1f", Files: 7}
	if err := at.store(path); err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(stored(), `"Target":2`, `"Shelf":2`, 1)
	if older == stored() {
		t.Fatalf("it is stored as %s", older)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%08x\n%s", crc32.ChecksumIEEE([]byte(older)), older), 0o600); err != nil {
		t.Fatal(err)
	}
	got := load(path, now)
	got.Began = got.Began.UTC()
	if got != at {
		t.Errorf("got %+v, want %+v", got, at)
	}
	if err := got.store(path); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stored(), "Shelf") {
		t.Errorf("it is stored as %s", stored())
	}
}

// TestPositionThatCannotBeStored: the error is reported, no temporary file is left, and the old
// file stays.
func TestPositionThatCannotBeStored(t *testing.T) {
	at := position{Began: time.Now().Add(-time.Hour), LastWhole: time.Now().Add(-time.Hour)}
	for name, c := range map[string]struct {
		before func(path string) error
		stays  bool // and can be loaded
	}{
		"no folder": {func(path string) error { return os.Remove(filepath.Dir(path)) }, false},
		"a folder in its place": {func(path string) error {
			return os.MkdirAll(filepath.Join(path, "in it"), 0o700)
		}, false},
		"full disk": {func(path string) error {
			return errors.Join(at.store(path), os.Symlink("/dev/full", path+".new"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in", "scrub")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.before(path); err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.WarnLevel)
			s, err := New(path, Options{Logger: zap.New(core)})
			if err != nil {
				t.Fatal(err)
			}
			if err := at.store(path); err == nil {
				t.Error("it is stored")
			}
			if _, err := os.Lstat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("of it is left: %v", err)
			}
			if got := load(path, time.Now()); got.Began.Equal(at.Began) != c.stays {
				t.Errorf("there is %+v", got)
			}
			if c.stays {
				_ = os.Symlink("/dev/full", path+".new")
			}
			s.begin()
			if logs.FilterMessage("cannot save the position of the scrub").Len() != 1 {
				t.Errorf("told of %v", logs.All())
			}
		})
	}
}

// TestPositionIsKeptNowAndThen: not at each shard, and not before there is one.
func TestPositionIsKeptNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(t, Options{})
		kept := func(now bool) bool {
			_ = os.Remove(s.path)
			s.keep(now)
			_, err := os.Lstat(s.path)
			return err == nil
		}
		if kept(true) {
			t.Error("a position is kept before the first pass")
		}
		s.begin()
		for _, step := range []struct {
			after time.Duration
			now   bool
			want  bool
		}{
			{0, false, false},
			{keepEvery - 1, false, false},
			{1, false, true},
			{keepEvery - 1, false, false},
			{0, true, true},
			{keepEvery - 1, false, false},
			{1, false, true},
		} {
			time.Sleep(step.after)
			if got := kept(step.now); got != step.want {
				t.Errorf("%+v: kept %v", step, got)
			}
		}
	})
}
