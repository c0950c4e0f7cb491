package rot

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	// These say how many actions there are, and which ones: see "make test-rot".
	rotActionsVariable = "FORERUNNER_TEST_ROT"
	rotSeedVariable    = "FORERUNNER_TEST_ROT_SEED"

	rotActionsShort = 90
	rotClients      = 4
	// rotPatience is how long a client tries to get a result before a person would have to look.
	rotPatience = 3 * time.Minute
	// rotAgain is how often it may have to ask.
	rotAgain = 12
)

// A rotTest has clients build while bytes flip below the farm.
type rotTest struct {
	*rotFarm
	seed    uint64
	tools   *rotTools
	actions []*rotAction
	random  *rand.Rand // of the faults

	done   chan struct{} // has a value for each result
	mu     sync.Mutex
	faults map[string]int // by kind; guarded by mu
	again  map[string]int // calls, by why they were tried again; guarded by mu
	cached atomic.Int64
	healed atomic.Int64 // blobs that a client had to bring once more
	redone atomic.Int64 // actions that a client had to have executed again
}

// A rotPhase is a part of the run, in which all faults are of one nature.
type rotPhase struct {
	name    string
	percent int      // of the actions
	storage []string // variables of the storage, and of the workers
	worker  [2][]string
	faults  func(*rotTest) []rotFault
}

func rotPhases() []rotPhase {
	// All damage must be found by those who use the blobs.
	off := []string{"FORERUNNER_SCRUB_EVERY=0"}
	each := append([]string{"FORERUNNER_VERIFY_EVERY=0"}, off...)
	return []rotPhase{
		{"written, fuse", 35, off, [2][]string{off, off}, (*rotTest).written},
		{"written, one with hard links", 25, off, [2][]string{off, append([]string{"FORERUNNER_EXEC_FILESYSTEM=hardlink"}, off...)}, (*rotTest).linked},
		{"rotted on the disk", 40, each, [2][]string{each, each}, (*rotTest).rotted},
	}
}

// TestRot flips bytes on the disks of a farm while it builds: no client may see a wrong one.
func TestRot(t *testing.T) { testRot(programs.New(t, programs.OwnSandbox)) }

func testRot(f *programs.Test) {
	number, seed := uint64(rotActionsShort), uint64(1)
	for name, value := range map[string]*uint64{rotActionsVariable: &number, rotSeedVariable: &seed} {
		if v := os.Getenv(name); v != "" {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				f.Fatal(err)
			}
			*value = n
		}
	}
	t := &rotTest{
		rotFarm: newRotFarm(f), seed: seed, tools: newRotTools(seed), random: rand.New(rand.NewPCG(seed, 0)),
		faults: map[string]int{}, again: map[string]int{},
	}
	for i := range int(number) {
		t.actions = append(t.actions, t.newAction(i))
	}
	began := time.Now()
	first := 0
	phases := rotPhases()
	for i, p := range phases {
		last := min(first+len(t.actions)*p.percent/100, len(t.actions))
		if i == len(phases)-1 {
			last = len(t.actions)
		}
		t.phase(p, t.actions[first:last])
		first = last
	}
	t.scrub()
	t.expectWhole()
	t.expectRightCache()
	t.tell(time.Since(began))
}

// phase executes actions, each followed by a fault or two.
func (t *rotTest) phase(p rotPhase, actions []*rotAction) {
	t.Helper()
	t.start(t.storage, p.storage...)
	t.start(t.scheduler)
	for i, w := range t.workers {
		t.start(w, p.worker[i]...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	t.done = make(chan struct{}, len(actions))
	queue := make(chan *rotAction)
	var clients, injector sync.WaitGroup
	for range rotClients {
		clients.Go(func() {
			for a := range queue {
				if t.Failed() {
					continue
				}
				t.build(ctx, a)
				t.done <- struct{}{}
			}
		})
	}
	injector.Go(func() { t.inject(p.faults(t)) })
	for _, a := range actions {
		queue <- a
	}
	close(queue)
	clients.Wait()
	close(t.done)
	injector.Wait()
	t.stop()
}

// expectWhole hashes all files of all stores.
func (t *rotTest) expectWhole() {
	t.Helper()
	for _, p := range append([]*rotProgram{t.storage}, t.workers...) {
		files := filesOf(t.T, p.cas())
		if len(files) == 0 {
			t.Errorf("%s has no blobs", p.name)
		}
		for _, path := range files {
			name, err := filepath.Rel(p.cas(), path)
			if err != nil {
				t.Fatal(err)
			}
			want, ok := disk.ParseBlobPath(name)
			content, err := os.ReadFile(path)
			if got := digest.Of(digest.SHA256, content); err != nil || !ok || got != want {
				t.Errorf("seed %d: %s of %s has the bytes of %s after a scrub: %v", t.seed, name, p.name, got, err)
			}
		}
	}
}

// expectRightCache compares all entries of the action cache with the model. Some may be gone.
func (t *rotTest) expectRightCache() {
	t.Helper()
	t.start(t.storage)
	t.start(t.scheduler)
	defer t.stop()
	found := 0
	for _, a := range t.actions {
		result, err := t.client.GetActionResult(t.Context(), a.digest)
		if err != nil {
			continue
		}
		found++
		if err := a.compare(t.Context(), t, result); err != nil && !isGone(err) {
			t.Errorf("seed %d, action %d: entry of the action cache: %v", t.seed, a.number, err)
		}
	}
	t.Logf("%d of %d actions have an entry in the action cache", found, len(t.actions))
	if found < len(t.actions)/4 {
		t.Errorf("only %d of %d actions have an entry in the action cache", found, len(t.actions))
	}
}

// tell prints the counts.
func (t *rotTest) tell(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Logf("seed %d: %d actions in %s, %d from the cache", t.seed, len(t.actions), took.Round(time.Second), t.cached.Load())
	all := 0
	for _, kind := range slices.Sorted(maps.Keys(t.faults)) {
		all += t.faults[kind]
		t.Logf("%6d %s", t.faults[kind], kind)
	}
	t.Logf("%6d faults; blobs that clients uploaded again: %d; actions that clients had executed again: %d; calls tried again: %v",
		all, t.healed.Load(), t.redone.Load(), t.again)
	var counted []string
	for _, name := range slices.Sorted(maps.Keys(t.total)) {
		for _, part := range []string{"damaged", "again", "verified_total"} {
			if strings.Contains(name, part) {
				counted = append(counted, fmt.Sprintf("%s %.0f", name, t.total[name]))
				break
			}
		}
	}
	t.Logf("the programs counted: %s", strings.Join(counted, ", "))
	if all == 0 {
		t.Error("nothing has rotted")
	}
}
