package prefetch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// TestFirstFilesOfAnybody: whatever a record says of the first files, each file of the tree that
// the profile has comes, and all credit is given back once the action has read them.
func TestFirstFilesOfAnybody(t *testing.T) {
	for seed := range uint64(40) {
		firstFilesOfAnybody(t, seed)
	}
}

// FuzzFirstFilesOfAnybody does so with more seeds.
func FuzzFirstFilesOfAnybody(f *testing.F) { f.Fuzz(firstFilesOfAnybody) }

func firstFilesOfAnybody(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newStorage()
		var paths, read []string
		for i := range 1 + random.IntN(80) {
			path := ""
			for range random.IntN(4) {
				path += fmt.Sprintf("d%d/", random.IntN(3))
			}
			path = fmt.Sprintf("%sf%d", path, i)
			read = append(read, path)
			paths = append(paths, fmt.Sprintf("%s:%d", path, 1+random.IntN(40_000)))
		}
		root := s.put(t, paths...)
		var r Recorder
		for _, path := range read {
			r.Read(path, tree.File)
		}
		profile := *NewProfile(r.Hashes(), ProfileOptions{})
		profile.first = hostileFirst(t, s, root, read, random)
		race := Start(t.Context(), Spec{Root: root, Source: s, Profile: &profile})
		early := random.IntN(2) == 0
		for _, path := range read {
			if early {
				race.Opened(path, tree.File)
				time.Sleep(time.Duration(random.IntN(int(roundTrip / 4))))
			}
		}
		time.Sleep(time.Hour)
		for _, path := range read {
			if !early {
				race.Opened(path, tree.File)
			}
		}
		synctest.Wait()
		q := race.queue
		q.mu.Lock()
		if q.credit.doubt != 0 || q.credit.largeDoubt != 0 || len(q.credit.known) != 0 || q.total != 0 || q.smallCalls != 0 {
			t.Errorf("seed %d, early %t: %d and %d bytes are in doubt, %d files known, %d bytes in %d calls under way",
				seed, early, q.credit.doubt, q.credit.largeDoubt, len(q.credit.known), q.total, q.smallCalls)
		}
		q.mu.Unlock()
		race.Stop()
		for _, path := range read {
			if d := s.at(t, root, path); !early && !s.has(d) {
				t.Errorf("seed %d: %s did not come", seed, path)
			}
		}
	})
}

// hostileFirst returns first files as they are read from a record with right and wrong ones.
func hostileFirst(t *testing.T, s *storage, root digest.Digest, read []string, random *rand.Rand) []First {
	t.Helper()
	m := &profiles.Files{}
	add := func(h PathHash, d digest.Digest) {
		m.Paths, m.Sizes, m.Hashes = append(m.Paths, uint64(h)), append(m.Sizes, d.SizeBytes()), d.AppendHash(m.Hashes)
	}
	for range random.IntN(60) {
		path := read[random.IntN(len(read))]
		right := s.at(t, root, path)
		switch random.IntN(6) {
		case 0, 1:
			add(HashPath(path), right)
		case 2: // another file that exists
			add(HashPath(path), s.at(t, root, read[random.IntN(len(read))]))
		case 3: // one that does not
			add(HashPath(path), fileDigest(fmt.Sprint("gone", random.IntN(9)), random.Int64N(60_000)))
		case 4: // a path that the profile may not have
			add(PathHash(random.Uint64()), right)
		case 5: // a directory
			add(RootHash, root)
		}
	}
	if random.IntN(8) == 0 && len(m.Sizes) > 0 {
		m.Sizes[random.IntN(len(m.Sizes))] = []int64{-1, 1 << 62, largeBytes + 1, -1 << 63}[random.IntN(4)]
		if files := parseFirst(m, digest.SHA256); files != nil {
			t.Errorf("a record with a size of nonsense: %v", files)
		}
	}
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var parsed profiles.Files
	if err := proto.Unmarshal(encoded, &parsed); err != nil {
		t.Fatal(err)
	}
	return parseFirst(&parsed, digest.SHA256)
}
