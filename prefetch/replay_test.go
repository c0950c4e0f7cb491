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

// put makes the input root of the run.
func (run recorded) put(t *testing.T, s *storage) digest.Digest {
	t.Helper()
	return s.put(t, run.files()...)
}

// files returns the files of the run, with their sizes.
func (run recorded) files() (paths []string) {
	for _, o := range run {
		paths = append(paths, fmt.Sprintf("%s:%d", o.path, o.bytes))
	}
	return paths
}

// replay returns how long the run waits for files and directories of an input root that has no
// others.
func (run recorded) replay(t *testing.T, trip time.Duration, bytesPerSecond float64, p *Profile, o Origin) time.Duration {
	t.Helper()
	return run.replayIn(t, run.files(), trip, bytesPerSecond, p, o)
}

// replayIn is replay in the input root that has all these files.
func (run recorded) replayIn(
	t *testing.T, all []string, trip time.Duration, bytesPerSecond float64, p *Profile, o Origin,
) (waited time.Duration) {
	t.Helper()
	waited, _, _ = run.play(t, all, trip, bytesPerSecond, p, o)
	return waited
}

// play is replayIn, and returns the storage and the input root, too.
func (run recorded) play(
	t *testing.T, all []string, trip time.Duration, bytesPerSecond float64, p *Profile, o Origin,
) (waited time.Duration, s *distant, root digest.Digest) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = newDistant(trip, bytesPerSecond)
		root = s.put(t, all...)
		race := Start(t.Context(), Spec{Root: root, Source: s, Profile: p, Origin: o})
		waited += s.need(t, root)
		for _, open := range run {
			time.Sleep(open.after)
			for i := range len(open.path) {
				if open.path[i] == '/' {
					waited += s.need(t, s.at(t, root, open.path[:i]))
				}
			}
			race.Opened(open.path, tree.File)
			waited += s.need(t, s.at(t, root, open.path))
		}
		race.Stop()
	})
	return waited, s, root
}

// withDirectories returns p with the directories that a run went through which read in this order,
// as an exact record has them.
func withDirectories(t *testing.T, p *Profile, all []string, order []PathHash) *Profile {
	t.Helper()
	s, with := newStorage(), *p
	read := map[PathHash]bool{}
	for _, h := range order {
		read[h] = true
	}
	with.directories = Directories(s.everywhere, s.put(t, all...), func(h PathHash) bool { return read[h] })
	return &with
}

// went returns p with the directories of the run.
func (run recorded) went(t *testing.T, p *Profile) *Profile {
	t.Helper()
	return withDirectories(t, p, run.files(), run.order())
}

// Three commands whose opens were recorded (strace -f) wait less with ranks than without, and with
// wrong ones much less than without a profile: g++ of a source that includes Boost, a Python
// program with the modules of a server, and go build of a small program from nothing.
func TestReplay(t *testing.T) {
	var sums [2]time.Duration
	for _, name := range []string{"gcc", "go", "python"} {
		run := readRecorded(t, filepath.Join("testdata", name+".reads.gz"))
		ranked := run.went(t, profileAfter(exactRules(ProfileOptions{}.withDefaults()), run.order()))
		for _, link := range []struct {
			mbitPerSecond float64
			trip          time.Duration
		}{{100, 50 * time.Millisecond}, {1000, 10 * time.Millisecond}, {1000, 50 * time.Millisecond}} {
			wait := func(p *Profile) time.Duration {
				return run.replay(t, link.trip, link.mbitPerSecond*1e6/8, p, Exact).Round(10 * time.Millisecond)
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
