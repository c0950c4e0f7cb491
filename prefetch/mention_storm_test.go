package prefetch

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Whatever comes at once, from whatever storage, nothing is requested after the end of a race, and
// nothing of it goes on.
func TestMentionsInAStorm(t *testing.T) {
	for seed := range scenes(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		files := map[string]string{}
		var paths []string
		for i := range 60 {
			path := fmt.Sprintf("d%d/e%d/f%d.h", r.IntN(5), r.IntN(3), i)
			paths = append(paths, path)
			for range r.IntN(20) {
				files[path] += fmt.Sprintf("#include <f%d.h>\n#include \"../f%d.h\"\n", r.IntN(60), r.IntN(60))
			}
			files[path] += fmt.Sprintln("//", i)
		}
		synctest.Test(t, func(t *testing.T) {
			l := newLibrary(t, files)
			for _, path := range paths {
				switch d := l.at(t, l.root, path); r.IntN(8) {
				case 0:
					delete(l.remote, d)
				case 1:
					l.local[d] = true
				}
			}
			race := Start(t.Context(), Spec{Root: l.root, Source: l, Contents: l.content})
			var all sync.WaitGroup
			all.Go(func() {
				race.KnowCommand(Command{Args: []string{"cc", "-Id0/e0", "-Id1", paths[0]}, WorkingDirectory: "."})
			})
			for range 4 {
				opened := r.Perm(len(paths))
				all.Go(func() {
					for _, i := range opened {
						d := l.at(t, l.root, paths[i])
						race.Opened(paths[i], tree.File)
						race.Came(d, cas.Absent)
						time.Sleep(roundTrip / 10)
					}
				})
			}
			time.Sleep(time.Duration(r.IntN(8)) * roundTrip)
			race.Stop()
			before := len(l.calls)
			all.Wait()
			time.Sleep(10 * roundTrip)
			if after := len(l.calls); after > before {
				t.Errorf("seed %d: %d calls after the end", seed, after-before)
			}
		})
	}
}
