package fuse

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestBackingsOfManyHands has files opened and closed by many callers, of more blobs than idle ids
// are kept: no id is given back twice or while a file uses it, and in the end only idle ones are
// left.
func TestBackingsOfManyHands(t *testing.T) {
	const blobs = maxIdleBackings + 500
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var last int32
	live := map[int32]bool{}
	given := 0
	table := &blobTable{unregister: func(id int32) {
		mu.Lock()
		defer mu.Unlock()
		if !live[id] {
			t.Errorf("id %d is given back, and is none", id)
		}
		delete(live, id)
		given++
	}}
	table.init()
	register := func(*os.File) (int32, bool) {
		mu.Lock()
		defer mu.Unlock()
		if last++; last%50 == 0 {
			return 0, false
		}
		live[last] = true
		return last, true
	}
	var hands sync.WaitGroup
	for hand := range uint64(6) {
		hands.Go(func() {
			random := rand.New(rand.NewPCG(hand, 9))
			var open []uint64
			for range 8000 {
				if len(open) > 0 && random.IntN(2) == 0 {
					i := random.IntN(len(open))
					b := table.at(open[i])
					mu.Lock()
					if b == nil || b.file == nil && !live[b.id] {
						t.Error("an open file has no blob")
					}
					mu.Unlock()
					table.release(open[i])
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
					continue
				}
				d := digest.Of(digest.SHA256, fmt.Append(nil, random.IntN(blobs)))
				b := table.use(d, 1)
				if b == nil {
					file, err := os.Open(path)
					if err != nil {
						t.Error(err)
						return
					}
					b = table.add(d, 1, file, register)
				}
				if b.digest != d {
					t.Error("another blob")
				}
				open = append(open, table.handle(b))
			}
			for _, h := range open {
				table.release(h)
			}
		})
	}
	hands.Wait()
	if n := table.idle.Len(); n != len(live) || n > maxIdleBackings || n != len(table.byDigest) || len(table.byHandle) > 0 || given == 0 {
		t.Errorf("%d are idle, %d are live, %d are known, %d are open, %d were given back",
			n, len(live), len(table.byDigest), len(table.byHandle), given)
	}
	table.closeFiles()
}
