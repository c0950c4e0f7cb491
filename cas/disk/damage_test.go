package disk

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestDamageRemembersTheLatest compares it with a plain list of all that happened.
func TestDamageRemembersTheLatest(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 1))
	var m damage
	var all []int
	for range 3 * maxDamage {
		k := random.IntN(2 * maxDamage)
		m.add(numbered(k))
		all = append(all, k)
	}
	if len(m.last) > maxDamage || len(m.order) != maxDamage {
		t.Errorf("%d keys and %d entries are kept", len(m.last), len(m.order))
	}
	last := map[int]int{}
	for i, k := range all {
		last[k] = i + 1
	}
	for range 1000 {
		k, count := random.IntN(2*maxDamage), random.IntN(len(all)+1)
		want := last[k] > count || count < len(all)-maxDamage // in doubt it was
		if got := m.since(numbered(k), uint64(count)); got != want {
			t.Fatalf("since(%d, %d): %t", k, count, got)
		}
	}
}

// TestIndexTellsFilesOfAKeyApart: all files of a key have different generations, and knowledge
// about one file is not used for the next.
func TestIndexTellsFilesOfAKeyApart(t *testing.T) {
	x, key := newIndex(10, 0), numbered(1)
	seen := map[uint64]bool{}
	for i := range 20 {
		if _, ok := x.reserve(1); !ok {
			t.Fatal("no room")
		}
		x.admit(key)
		x.finish(key, 1, 0)
		e := x.lookup(key)
		if seen[e.generation] || e.generation == 0 || e.proof != (proof{}) {
			t.Fatalf("generation %d again, or %+v is known", e.generation, e.proof)
		}
		seen[e.generation] = true
		e.proof = proof{at: 1, mark: 2}
		if i%2 == 0 {
			x.drop(key)
		} else {
			x.evict(1)
		}
		x.gone(key)
		if x.faults[damaged].since(key, uint64((i+1)/2)) != (i%2 == 0) {
			t.Errorf("step %d: %+v", i, x.faults[damaged])
		}
	}
}

// TestDamagedCopiesCount: copies that other programs have found damaged on the same disk are
// reported and counted like the store's own.
func TestDamagedCopiesCount(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	s := storeOpen(t, t.TempDir(), Options{Logger: zap.New(core)})
	d, file := digest.Of(digest.SHA256, []byte("a blob")), filepath.Join(t.TempDir(), "copy")
	s.CopyDamaged(d, file)
	if got := s.Stats().DamagedBlobs; got != 1 {
		t.Errorf("%d are counted", got)
	}
	told := logs.All()
	if len(told) != 1 {
		t.Fatalf("told %d times", len(told))
	}
	if got := told[0].ContextMap(); got["digest"] != d.String() || got["file"] != file || !strings.Contains(fmt.Sprint(got["device"]), ":") {
		t.Errorf("told of %v", got)
	}
}
