package prefetch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/fsac"
)

// race runs a Race until nothing happens any more, and stops it.
func race(t *testing.T, s Spec) (*Race, Stats) {
	t.Helper()
	r := Start(t.Context(), s)
	time.Sleep(time.Hour)
	synctest.Wait()
	return r, r.Stop()
}

// deepTree returns the paths of a tree of that depth, some of which are read.
func deepTree(depth int) (paths, read []string) {
	for i := range depth {
		dir := strings.Repeat("d/", i)
		for j := range 30 {
			path := fmt.Sprintf("%sf%02d%02d", dir, i, j)
			paths = append(paths, path)
			if j%3 == 0 {
				read = append(read, path)
			}
		}
		for j := range 20 {
			path := fmt.Sprintf("%se%02d/g%02d%02d", dir, j, i, j)
			paths = append(paths, path)
			if j%2 == 0 {
				read = append(read, path)
			}
		}
	}
	return paths, read
}

func TestRaceFetchesWhatIsForeseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const depth = 10
		s := newStorage()
		paths, read := deepTree(depth)
		root := s.put(t, paths...)
		began := time.Now()
		_, stats := race(t, Spec{Root: root, Source: s, Profile: profileOf(read...)})
		for _, path := range read {
			if !s.has(s.at(t, root, path)) {
				t.Errorf("%s did not come", path)
			}
		}
		// One level after the other, and then the files of the last.
		if trips := s.last.Sub(began) / roundTrip; trips > depth+2 {
			t.Errorf("%d serial round trips for %d levels", trips, depth)
		}
		more := stats.Files.Files - int64(len(read))
		if more < 0 || more > 3 || stats.Foreseen != stats.Files || stats.Files.Bytes != 10*stats.Files.Files {
			t.Errorf("%+v, want %d files", stats, len(read))
		}
		if n := stats.Directories.Files; n < 11*depth || n > 11*depth+2 {
			t.Errorf("%d directories came", n)
		}
	})
}

// What is foreseen below a directory that is not, is a false positive.
func TestRaceGoesNowhereUnforeseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, "a/b/c", "a/d", "e/f")
		p := NewProfile([]PathHash{RootHash, HashPath("e"), HashPath("e/f"), HashPath("a/b"), HashPath("a/b/c")}, ProfileOptions{})
		race(t, Spec{Root: root, Source: s, Profile: p})
		if s.looked[s.at(t, root, "a")] || !s.has(s.at(t, root, "e/f")) || len(s.calls) != 3 {
			t.Errorf("calls %v", s.calls)
		}
	})
}

// Whatever is local costs no trip, and what is missing or no directory hinders nobody.
func TestRacePassesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, "a/b/c/deep", "gone/lost", "bad/worse", "z/file", "z/gone")
		for _, path := range []string{"", "a", "a/b/c"} {
			s.local[s.at(t, root, path)] = true
		}
		want := []digest.Digest{s.at(t, root, "a/b/c/deep"), s.at(t, root, "z/file")}
		s.remote[s.at(t, root, "gone")], s.remote[s.at(t, root, "z/gone")] = false, false
		s.dirs[s.at(t, root, "bad")] = nil
		_, stats := race(t, Spec{
			Root: root, Source: s,
			Profile: profileOf("a/b/c/deep", "gone/lost", "bad/worse", "z/file", "z/gone"),
		})
		for _, d := range want {
			if !s.local[d] {
				t.Errorf("%s did not come", d)
			}
		}
		if len(s.calls[0]) != 4 {
			t.Errorf("the first call asks for %d directories, want all that are missing", len(s.calls[0]))
		}
		if stats.Directories.Files != 3 || stats.Files.Files != 2 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestRaceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		paths, read := deepTree(5)
		root := s.put(t, paths...)
		for trips := range 8 {
			clear(s.local)
			r := Start(t.Context(), Spec{Root: root, Source: s, Profile: profileOf(read...)})
			time.Sleep(time.Duration(trips)*roundTrip + roundTrip/2)
			began := time.Now()
			first := r.Stop()
			if time.Since(began) > 0 {
				t.Error("Stop waited for a call")
			}
			if s.files+s.directories > 0 {
				t.Error("Stop returned before a call")
			}
			if r.Stop() != first {
				t.Error("stopping again")
			}
		}
		r := Start(t.Context(), Spec{Root: root, Source: s}) // nearness waits for Stop
		time.Sleep(time.Hour)
		r.Stop()
	})
}

func TestRacesShareLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		var races []*Race
		limits := NewLimits(LimitsOptions{Calls: 5, BytesInFlight: 4 << 20, DirectoryCalls: 2})
		for i := range 10 {
			var paths []string
			for j := range 20 {
				paths = append(paths, fmt.Sprintf("%d/%d:%d", i, 100*i+j, 300_000), fmt.Sprintf("%d/l%d:%d", i, 100*i+j, 3<<20))
			}
			root := s.put(t, paths...)
			var read []string
			for _, path := range paths {
				path, _, _ = strings.Cut(path, ":")
				read = append(read, path)
			}
			races = append(races, Start(t.Context(), Spec{Root: root, Source: s, Profile: profileOf(read...), Limits: limits}))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		var files int64
		for _, r := range races {
			files += r.Stop().Foreseen.Files
		}
		if files != 400 || s.maxFiles > 5 || s.maxFiles < 2 || s.maxDirectories != 2 {
			t.Errorf("%d files, %d calls for files and %d for directories at a time", files, s.maxFiles, s.maxDirectories)
		}
		// A large file counts for a quarter.
		if s.maxBytes > 4*(3<<20)+bytesPerCall {
			t.Errorf("%d bytes at a time", s.maxBytes)
		}
	})
}

func TestRaceFetchesSmallFilesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		paths, read := []string{"0large:9000000", "z"}, []string{"0large", "z"}
		for i := range 3000 {
			path := fmt.Sprintf("m%04d", i)
			paths, read = append(paths, path), append(read, path)
		}
		root := s.put(t, paths...)
		race(t, Spec{Root: root, Source: s, Profile: profileOf(read...), Limits: wideLimits(LimitsOptions{Calls: 1})})
		last := s.calls[len(s.calls)-1]
		if !slices.Equal(last, []digest.Digest{s.at(t, root, "0large")}) {
			t.Errorf("the last of %d calls asks for %d others", len(s.calls), len(last))
		}
		if first := s.calls[1]; first[0] != s.at(t, root, "m0000") || len(first) != filesPerCall {
			t.Errorf("the first call has %d files", len(first))
		}
	})
}

// Large files yield when the action opens a file that the profile lacks, until that is rare.
func TestRaceYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		read := numbered("a/f%02d", 60)
		root := s.put(t, append(read, "b/other")...)
		r := Start(t.Context(), Spec{Root: root, Source: s, Profile: profileOf(read...)})
		defer r.Stop()
		open := func(paths ...string) {
			for _, path := range paths {
				time.Sleep(time.Second)
				r.Opened(path, tree.File)
			}
			synctest.Wait()
		}
		open(read[:20]...)
		if len(s.yields) > 0 {
			t.Errorf("with a right profile Yield is called with %v", s.yields)
		}
		open("b/other", "b/another")
		if !slices.Equal(s.yields, []bool{true}) {
			t.Errorf("Yield is called with %v", s.yields)
		}
		open(read[20:]...)
		if !slices.Equal(s.yields, []bool{true, false}) {
			t.Errorf("in the end Yield was called with %v", s.yields)
		}
	})
}

// A small tree can name so many directories that nobody could go through it.
func TestRaceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, "leaf")
		for range 12 {
			message := &repb.Directory{}
			for i := range 10 {
				message.Directories = append(message.Directories,
					&repb.DirectoryNode{Name: fmt.Sprint(i), Digest: root.Proto()})
			}
			root = s.putDirectory(t, message)
		}
		every, ok := ParseProfile(&fsac.FileSystemAccessProfile{BloomFilter: []byte{0xff}, BloomFilterHashFunctions: 1})
		if !ok || !every.Contains(12345) {
			t.Fatal("no profile of every path")
		}
		for _, p := range []*Profile{nil, every} {
			clear(s.local)
			_, stats := race(t, Spec{Root: root, Source: s, Profile: p})
			if stats.Directories.Files > 13 || stats.Foreseen.Files > maxDirectories {
				t.Errorf("%+v", stats)
			}
		}
	})
}

// Without a profile, directories are fetched because they are small. Large ones are not.
func TestLargeDirectoriesAreNotFetchedBlindly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		message := &repb.Directory{}
		for i := range 10 {
			d := fileDigest(fmt.Sprint(i), 10<<20)
			s.remote[d] = true
			message.Directories = append(message.Directories, &repb.DirectoryNode{Name: fmt.Sprint(i), Digest: d.Proto()})
		}
		_, stats := race(t, Spec{Root: s.putDirectory(t, message), Source: s})
		if n := stats.Directories.Bytes; n > maxBlindBytes || n < maxBlindBytes/2 {
			t.Errorf("%d bytes of directories came", n)
		}
	})
}
