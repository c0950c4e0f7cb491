package prefetch

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A recorded run is the files that a command opened, in their order.
type recorded []opened

type opened struct {
	after time.Duration // the one before, of computing
	bytes int64
	path  string
}

// readRecorded reads a file with a line for each open: microseconds, bytes and path.
func readRecorded(t *testing.T, file string) (run recorded) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(text); lines.Scan(); {
		var o opened
		if _, err := fmt.Sscan(lines.Text(), &o.after, &o.bytes, &o.path); err != nil {
			t.Fatalf("%s: %q: %v", file, lines.Text(), err)
		}
		o.after *= time.Microsecond
		run = append(run, o)
	}
	return run
}

// orderOf returns what a Recorder has of a run that opened these files in this order.
func orderOf(paths ...string) []PathHash {
	var r Recorder
	for _, path := range paths {
		r.Read(path, tree.File)
	}
	return r.Hashes()
}

func (run recorded) order() []PathHash {
	var paths []string
	for _, open := range run {
		paths = append(paths, open.path)
	}
	return orderOf(paths...)
}

// profile returns the profile after runs that read in these orders.
func profileAfter(r rules, orders ...[]PathHash) *Profile {
	k := &knowledge{}
	for i, order := range orders {
		k, _ = k.learn(uint64(i), readingOf(order), r)
	}
	return k.profile()
}

// rankless returns p as programs know it that note no ranks.
func rankless(p *Profile) *Profile {
	without, h := *p, *p.history
	h.ranks = nil
	without.history = &h
	return &without
}

// files returns the files of the run, with their sizes.
func (run recorded) files() (paths []string) {
	for _, o := range run {
		paths = append(paths, fmt.Sprintf("%s:%d", o.path, o.bytes))
	}
	return paths
}

// A stage is an input root in which runs are replayed, each with nothing local.
type stage struct {
	storage *storage
	root    digest.Digest
	paths   map[string]digest.Digest
}

// stageOf returns the input root with these files.
func stageOf(t testing.TB, all []string) *stage {
	s := &stage{storage: newStorage(), paths: map[string]digest.Digest{}}
	s.root = s.storage.put(t, all...)
	return s
}

// stage returns the input root that has no other files than those of the run.
func (run recorded) stage(t testing.TB) *stage { return stageOf(t, run.files()) }

// at returns the digest of what is at path.
func (s *stage) at(t testing.TB, path string) digest.Digest {
	d, ok := s.paths[path]
	if !ok {
		d = s.storage.at(t, s.root, path)
		s.paths[path] = d
	}
	return d
}

// A distance is that of a storage.
type distance struct {
	trip           time.Duration
	bytesPerSecond float64
}

// mbit is a distance.
func mbit(perSecond float64, trip time.Duration) distance { return distance{trip, perSecond * 1e6 / 8} }

// distant returns the storage of the input root so far away.
func (s *stage) distant(d distance) *distant {
	far := newDistant(d)
	far.storage = s.near()
	return far
}

// near returns the storage of the input root, in which calls take roundTrip.
func (s *stage) near() *storage {
	near := newStorage()
	near.dirs, near.remote = s.storage.dirs, s.storage.remote
	return near
}

// needs returns the directories and the file that must be there before the command reads path.
func (s *stage) needs(t testing.TB, path string) (needs []digest.Digest) {
	for i := range len(path) {
		if path[i] == '/' {
			needs = append(needs, s.at(t, path[:i]))
		}
	}
	return append(needs, s.at(t, path))
}

// replay returns how long the run waits for files and directories.
func (run recorded) replay(t *testing.T, in *stage, away distance, p *Profile, o Origin) time.Duration {
	t.Helper()
	waited, _ := run.play(t, in, away, p, o)
	return waited
}

// play is replay, and returns the storage, too.
func (run recorded) play(t *testing.T, in *stage, away distance, p *Profile, o Origin) (waited time.Duration, s *distant) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = in.distant(away)
		race := Start(t.Context(), Spec{Root: in.root, Source: s, Profile: p, Origin: o})
		waited += s.need(t, in.root)
		for _, open := range run {
			time.Sleep(open.after)
			needs := in.needs(t, open.path)
			for _, d := range needs[:len(needs)-1] {
				waited += s.need(t, d)
			}
			race.Opened(open.path, tree.File)
			waited += s.need(t, needs[len(needs)-1])
		}
		race.Stop()
	})
	return waited, s
}

// withDirectories returns p with the directories that a run went through which read in this order,
// as an exact record has them.
func (s *stage) withDirectories(p *Profile, order []PathHash) *Profile {
	with, read := *p, map[PathHash]bool{}
	for _, h := range order {
		read[h] = true
	}
	with.directories = Directories(s.storage.everywhere, s.root, func(h PathHash) bool { return read[h] })
	return &with
}

// Three commands whose opens were recorded (strace -f) wait less with ranks than without, and with
// wrong ones much less than without a profile: g++ of a source that includes Boost, a Python
// program with the modules of a server, and go build of a small program from nothing.
func TestReplay(t *testing.T) {
	var sums [2]time.Duration
	for _, name := range []string{"gcc", "go", "python"} {
		run := readRecorded(t, filepath.Join("testdata", name+".reads.gz"))
		in := run.stage(t)
		ranked := in.withDirectories(profileAfter(exactRules(ProfileOptions{}.withDefaults()), run.order()), run.order())
		for _, link := range []struct {
			mbitPerSecond float64
			trip          time.Duration
		}{{100, 50 * time.Millisecond}, {1000, 10 * time.Millisecond}, {1000, 50 * time.Millisecond}} {
			wait := func(p *Profile) time.Duration {
				return run.replay(t, in, mbit(link.mbitPerSecond, link.trip), p, Exact).Round(10 * time.Millisecond)
			}
			none, without, with := wait(nil), wait(rankless(ranked)), wait(ranked)
			wrong := wait(withRanks(ranked, func(r rank) rank { return lastRank - r }))
			t.Logf("%-6s, %4g Mbit/s, %s: waits %5s without a profile, %5s without ranks, %5s with, %5s with wrong ones",
				name, link.mbitPerSecond, link.trip, none, without, with, wrong)
			// Which requests share a trip depends on which goroutine comes first.
			if with > without*105/100+2*link.trip || wrong > none {
				t.Error("ranks make it wait longer")
			}
			sums[0] += without
			sums[1] += with
		}
	}
	if sums[1] > sums[0]*99/100 {
		t.Errorf("waits %s without ranks, %s with", sums[0], sums[1])
	}
}
