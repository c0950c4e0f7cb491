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

func newReader(t *testing.T, s *storage, spec Spec) *reader {
	spec.Source = s
	r := &reader{t: t, s: s, root: spec.Root, race: Start(t.Context(), spec)}
	time.Sleep(time.Hour)
	synctest.Wait()
	return r
}

// Who reads directory after directory waits for less and less of each, and at last for
// nothing.
func TestNearbyReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		paths := append(flatTree(60, 20), "d000/large:600000", "other/below/file")
		root := s.put(t, paths...)
		r := newReader(t, s, Spec{Root: root})
		if len(s.calls) != 3 || !s.has(s.at(t, root, "d007")) {
			t.Errorf("%d calls, want one for each level of directories", len(s.calls))
		}
		var cold []int
		for i := range 60 {
			before := r.cold
			for j := range 20 {
				r.open(fmt.Sprintf("d%03d/f%03d%03d", i, i, j), tree.File)
			}
			cold = append(cold, r.cold-before)
		}
		if cold[0] != 1 || cold[1] != 1 || r.cold != 2 {
			t.Errorf("waited so often in each directory: %v", cold)
		}
		if s.has(s.at(t, root, "d000/large")) || s.has(s.at(t, root, "other/below/file")) {
			t.Error("a large file came, or one of a directory that nobody looked near")
		}
		stats := r.race.Stop()
		if stats.NearbyOff || stats.Directories.Files != 63 || stats.Files.Files+int64(r.cold) != 60*20 {
			t.Errorf("%+v", stats)
		}
	})
}

// Of a directory of any size all comes, after ever fewer waits.
func TestNearbyFollowsALargeDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, flatTree(1, 1000)...)
		r := newReader(t, s, Spec{Root: root})
		for j := range 1000 {
			r.open(fmt.Sprintf("d000/f000%03d", j), tree.File)
		}
		if r.cold != 1 {
			t.Errorf("waited %d times", r.cold)
		}
		if calls := len(s.calls); calls > 20 {
			t.Errorf("%d calls", calls)
		}
	})
}

// What was read is not asked for, and the neighbours after it come first.
func TestNearbyBeginsBehindWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, flatTree(1, 200)...)
		r := newReader(t, s, Spec{Root: root})
		r.open("d000/f000150", tree.File)
		for j, want := range map[int]bool{149: false, 151: true, 170: true, 199: false, 0: false} {
			if got := s.has(s.at(t, root, fmt.Sprintf("d000/f000%03d", j))); got != want {
				t.Errorf("file %d came: %t", j, got)
			}
		}
		if stats := r.race.Stop(); stats.Files.Files != nearFiles+2 {
			t.Errorf("%+v", stats)
		}
	})
}

// A small directory comes as a whole, also what is before the first file that is read. A larger one
// does not.
func TestNearbyTakesASmallDirectory(t *testing.T) {
	for _, c := range []struct {
		files, size, want int
	}{{nearWhole, nearWholeBytes / nearWhole, nearWhole - 1}, {nearWhole + 1, 10, nearFiles + 2}, {nearWhole, nearWholeBytes/nearWhole + 1, nearFiles + 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStorage()
			var paths []string
			for i := range c.files {
				paths = append(paths, fmt.Sprintf("d/%03d:%d", i, c.size))
			}
			r := newReader(t, s, Spec{Root: s.put(t, paths...)})
			r.open("d/006", tree.File)
			if n := r.race.Stop().Files.Files; n != int64(c.want) {
				t.Errorf("of %d files %d came, want %d", c.files, n, c.want)
			}
		})
	}
}

// The parts of a module come that are in the folder with its name.
func TestNearbyTakesTheNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, "lib/alpha.test.h", "lib/alpha/one", "lib/alpha/deep/two", "lib/beta.h", "lib/beta/three", "lib/none.h")
		r := newReader(t, s, Spec{Root: root})
		r.open("lib/none.h", tree.File)
		for _, path := range []string{"lib/alpha/one", "lib/beta/three"} {
			if s.has(s.at(t, root, path)) {
				t.Errorf("%s came with a file of another name", path)
			}
		}
		r.open("lib/alpha.test.h", tree.File)
		for path, want := range map[string]bool{"lib/alpha/one": true, "lib/alpha/deep/two": false, "lib/beta/three": false} {
			if got := s.has(s.at(t, root, path)); got != want {
				t.Errorf("%s came: %t", path, got)
			}
		}
		r.race.Stop()
	})
}

func TestNearbyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, flatTree(200, 40)...)
		r := newReader(t, s, Spec{Root: root})
		for i := range 200 {
			r.open(fmt.Sprintf("d%03d/f%03d%03d", i, i, 0), tree.File)
		}
		// A period is judged, after one in which what it fetched could be read, and
		// another one has begun.
		stats := r.race.Stop()
		if limit := int64(2*nearPeriod + 3*nearWhole); !stats.NearbyOff || stats.Files.Files > limit {
			t.Errorf("%+v, want at most %d files", stats, limit)
		}
	})
}

// However little is read of what comes, it is no more than what is read, and a constant.
func TestNearbyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		var paths []string
		for i := range 100 {
			for j := range 20 {
				paths = append(paths, fmt.Sprintf("d%d/%d-%d:%d", i, i, j, 64<<10))
			}
		}
		root := s.put(t, paths...)
		r := newReader(t, s, Spec{Root: root})
		var read int64
		for i := range 100 {
			// Two of twenty: too many to give it up.
			for j := range 2 {
				r.open(fmt.Sprintf("d%d/%d-%d", i, i, j), tree.File)
				read += 64 << 10
			}
			if unread := s.fileBytes() - read; unread > nearFree+read {
				t.Fatalf("%d bytes came that were not read, and %d were read", unread, read)
			}
		}
		if stats := r.race.Stop(); stats.NearbyOff || stats.Files.Bytes < nearFree+read/2 {
			t.Errorf("%+v, so the bound was not tried", stats)
		}
	})
}

// In one directory, and without Profile, the bounds hold.
func TestNearbyIsBoundedInADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		var paths []string
		for i := range 1000 {
			paths = append(paths, fmt.Sprintf("many/%04d", i), fmt.Sprintf("big/%04d:%d", i, 128<<10))
		}
		root := s.put(t, paths...)
		r := newReader(t, s, Spec{Root: root})
		for range 10 * maxOpened {
			r.race.Opened("many/0000", tree.File)
		}
		time.Sleep(time.Second)
		if n := r.race.Stop().Files.Files; n != nearFiles+2 {
			t.Errorf("%d files came", n)
		}
		r = newReader(t, s, Spec{Root: root})
		r.open("big/0000", tree.File)
		r.open("", tree.Dir)
		r.open("big", tree.Dir)
		if n := r.race.Stop().Files.Bytes; n > nearBytes+2*128<<10 {
			t.Errorf("%d bytes came", n)
		}
		paths = nil
		for i := range maxBlind + 1000 {
			paths = append(paths, fmt.Sprintf("%d/%d", i, i))
		}
		r = newReader(t, s, Spec{Root: s.put(t, paths...)})
		if n := r.race.Stop().Directories.Files; n != maxBlind {
			t.Errorf("%d directories came without a profile", n)
		}
	})
}
