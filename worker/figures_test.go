package worker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestFiguresOfRoots runs commands in roots of each kind, with some files already in the store. It
// compares the figures with the files that the command opened and those that had to be fetched from
// storage.
func TestFiguresOfRoots(t *testing.T) {
	for _, kind := range []struct {
		name  string
		roots vfs.Options
		image bool
	}{
		{"FUSE", vfs.Options{Method: vfs.FUSE}, false},
		{"image", vfs.Options{Method: vfs.FUSE}, true},
		{"links", vfs.Options{Method: vfs.HardLink}, false},
	} {
		t.Run(kind.name, func(t *testing.T) {
			f := newFarmThatRemembers(t, kind.roots, prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}))
			sdk := tree{}
			for i := range 300 {
				sdk[fmt.Sprintf("sdk/lib%d/file", i)] = fmt.Sprintf("library %d", i)
			}
			if kind.image {
				for i := range 2 {
					sdk["own"] = fmt.Sprint(i)
					assertOK(t, f.run(t, spec{inputs: sdk, shell: "ls sdk/* > /dev/null; cat own"}))
				}
				for deadline := time.Now().Add(patience); f.roots.Images() == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("there is no metadata image")
					}
				}
			}
			random := rand.New(rand.NewPCG(20, 5))
			for round := range 3 {
				sdk["own"] = fmt.Sprint("own ", round)
				var reads []string
				var want struct{ files, local int64 }
				for i := range 300 {
					if random.IntN(6) > 0 {
						continue
					}
					path := fmt.Sprintf("sdk/lib%d/file", i)
					reads = append(reads, path)
					want.files++
					if f.local.Has(digestOfBytes(sdk[path].(string))) {
						want.local++
					}
				}
				before := map[digest.Digest]bool{}
				for _, content := range sdk {
					d := digestOfBytes(content.(string))
					before[d] = f.local.Has(d)
				}
				r := f.run(t, spec{inputs: sdk, shell: "cat own " + strings.Join(reads, " ") + " > /dev/null"})
				assertOK(t, r)
				if kind.name == "links" {
					if m, ok := figuresOf(t, r); ok {
						t.Errorf("nobody sees what is opened of links, and it is %v", m)
					}
					continue
				}
				m, ok := figuresOf(t, r)
				if !ok {
					t.Fatal("no figures")
				}
				opened := map[digest.Digest]bool{digestOfBytes(sdk["own"].(string)): true}
				for _, path := range reads {
					opened[digestOfBytes(sdk[path].(string))] = true
				}
				var waited, unused int64
				for d, before := range before {
					switch came := !before && f.local.Has(d); {
					case came && opened[d]:
						waited++ // or not, if it was foreseen
					case came:
						unused++
					}
				}
				// A call that ends with the command may store a blob when the figures have been
				// made.
				const calls = 16
				after := unused - m.GetUnused().GetFiles()
				// own is another one in each round.
				if m.GetFiles().GetFiles() != want.files+1 || m.GetLocal().GetFiles() != want.local ||
					m.GetForeseen().GetFiles()+m.GetLate().GetFiles()+m.GetMissed().GetFiles() != waited ||
					after < 0 || after > calls {
					t.Errorf("round %d: %v, want %+v; %d of them were fetched, and %d others", round, m, want, waited, unused)
				}
			}
		})
	}
}

func figuresOf(t *testing.T, r *repb.ExecuteResponse) (*actionstats.Prefetch, bool) {
	t.Helper()
	for _, packed := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		var m actionstats.Prefetch
		if packed.MessageIs(&m) {
			check(t, packed.UnmarshalTo(&m))
			return &m, true
		}
	}
	return nil, false
}
