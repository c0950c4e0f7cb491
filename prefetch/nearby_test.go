package prefetch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// flatTree returns the paths of directories with files in each.
func flatTree(directories, files int) (paths []string) {
	for i := range directories {
		for j := range files {
			paths = append(paths, fmt.Sprintf("d%03d/f%03d%03d", i, i, j))
		}
	}
	return paths
}

// reader is an action that reads with a Race at its side.
type reader struct {
	t    *testing.T
	s    *storage
	race *Race
	root digest.Digest
	cold int // reads of what had not come
}

func (r *reader) open(path string, k tree.Kind) {
	if d := r.s.at(r.t, r.root, path); !r.s.has(d) {
		r.cold++
		r.s.mu.Lock()
		r.s.local[d] = true
		r.s.mu.Unlock()
	}
	r.race.Opened(path, k)
	time.Sleep(3 * roundTrip)
	synctest.Wait()
}

func newReader(t *testing.T, s *storage, root digest.Digest) *reader {
	r := &reader{t: t, s: s, root: root, race: Start(t.Context(), Spec{Root: root, Source: s})}
	time.Sleep(time.Hour)
	synctest.Wait()
	return r
}

// Who reads directory after directory waits for less and less of each.
func TestNearbyReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		paths := append(flatTree(60, 20), "d000/large:200000", "other/file")
		root := s.put(t, paths...)
		r := newReader(t, s, root)
		if len(s.calls) != 2 || !s.has(s.at(t, root, "d007")) {
			t.Errorf("%d calls, want one for each level of directories", len(s.calls))
		}
		var cold []int
		for i := range 60 {
			before := r.cold
			r.open(fmt.Sprintf("d%03d", i), tree.Dir)
			for j := range 20 {
				r.open(fmt.Sprintf("d%03d/f%03d%03d", i, i, j), tree.File)
			}
			cold = append(cold, r.cold-before)
		}
		if cold[0] != 2 || cold[59] != 0 {
			t.Errorf("waited so often in each directory: %v", cold)
		}
		if s.has(s.at(t, root, "d000/large")) || s.has(s.at(t, root, "other/file")) {
			t.Error("a large file came, or one of a directory that nobody looked at")
		}
		stats := r.race.Stop()
		if stats.NearbyOff || stats.Directories.Files != 62 || stats.Files.Files+int64(r.cold) != 60*20 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestNearbyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, flatTree(60, 20)...)
		r := newReader(t, s, root)
		for i := range 60 {
			for j := range 4 {
				r.open(fmt.Sprintf("d%03d/f%03d%03d", i, i, j), tree.File)
			}
		}
		stats := r.race.Stop()
		// Those that are judged, and those that are too young for it.
		if limit := int64(20 * (nearLeast/18 + 2 + nearYoung)); !stats.NearbyOff || stats.Files.Files > limit {
			t.Errorf("%+v, want at most %d files", stats, limit)
		}
	})
}

// In one directory the bounds hold.
func TestNearbyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		var paths []string
		for i := range 1000 {
			paths = append(paths, fmt.Sprintf("many/%04d", i), fmt.Sprintf("big/%04d:%d", i, nearFileBytes))
		}
		root := s.put(t, paths...)
		r := newReader(t, s, root)
		for range 10 * maxOpened {
			r.race.Opened("many/0000", tree.File)
		}
		time.Sleep(time.Second)
		if n := r.race.Stop().Files.Files; n != nearFiles {
			t.Errorf("%d files came", n)
		}
		r = newReader(t, s, root)
		r.open("big/0000", tree.File)
		r.open("big/0001", tree.File)
		r.open("", tree.Dir)
		r.open("big", tree.Dir)
		if n := r.race.Stop().Files.Bytes; n > nearBytes {
			t.Errorf("%d bytes came", n)
		}
		paths = nil
		for i := range maxBlind + 1000 {
			paths = append(paths, fmt.Sprintf("%d/%d", i, i))
		}
		r = newReader(t, s, s.put(t, paths...))
		if n := r.race.Stop().Directories.Files; n != maxBlind {
			t.Errorf("%d directories came without a profile", n)
		}
	})
}
