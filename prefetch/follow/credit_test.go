package follow

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A world is an input root of headers that include others beside them or elsewhere, with a storage
// and an action. It knows by simpler rules than a Follower what may be requested.
type world struct {
	*hostile
	*rand.Rand
	root  digest.Digest
	paths []string
	at    map[string]digest.Digest
	local map[digest.Digest]bool

	f        *Follower
	calls    [][]File // under way
	asked    map[string]bool
	unread   map[string]int64 // bytes of requested files that may be coming or here
	opened   map[string]bool
	told     map[string]bool // last components of the paths in all contents that are local
	right    int64           // bytes of opened files that are told
	late     int64           // opened files that are told, and were not requested before
	requests int
}

// newWorld returns a random world.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		hostile: newHostile(t), Rand: rand.New(rand.NewPCG(seed, 20)), at: map[string]digest.Digest{}, local: map[digest.Digest]bool{},
		asked: map[string]bool{}, unread: map[string]int64{}, opened: map[string]bool{}, told: map[string]bool{},
	}
	w.root = w.grow("", 3)
	return w
}

// grow makes a folder with files and folders in it.
func (w *world) grow(at string, levels int) digest.Digest {
	m := &repb.Directory{}
	for i := range 2 + w.IntN(30) {
		name := fmt.Sprintf("f%02d.h", i)
		d := w.content(name)
		w.at[at+name] = d
		w.paths = append(w.paths, at+name)
		m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: d.Proto()})
	}
	for i := 0; levels > 0 && i < w.IntN(4); i++ {
		name := fmt.Sprintf("d%d", i)
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: w.grow(at+name+"/", levels-1).Proto()})
	}
	for i, target := range []string{"..", ".", "d0", "d1/d0", "s2", "../../..", "/", "f00.h"} {
		if w.IntN(4) == 0 {
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: fmt.Sprint("s", i), Target: target})
		}
	}
	return w.folder(m)
}

// content returns the digest of a file that mentions others. Some have the same content.
func (w *world) content(name string) digest.Digest {
	var text strings.Builder
	for range w.IntN(12) {
		var up strings.Builder
		for range w.IntN(3) {
			up.WriteString([]string{"../", "d0/", "d1/", "s0/", "s3/"}[w.IntN(5)])
		}
		fmt.Fprintf(&text, []string{"#include \"%sf%02d.h\"\n", "#include <%sf%02d.h>\n", "#define X \"%sf%02d.h\"\n"}[w.IntN(3)], up.String(), w.IntN(32))
	}
	about := fmt.Sprint(name, w.IntN(1<<20), text.String())
	if w.IntN(4) == 0 {
		about = text.String()
	}
	size := []int64{1, 2000, 100_000, 500_000, maxFileBytes + 1}[w.IntN(5)]
	d, err := digest.Parse(digest.SHA256, digest.Of(digest.SHA256, []byte(about)).Hash(), size)
	if err != nil {
		w.Fatal(err)
	}
	w.contents[d] = text.String()
	w.local[d] = w.IntN(5) == 0
	return d
}

// start starts the Follower.
func (w *world) start() {
	spec := w.spec(w.root)
	spec.Contents = func(d digest.Digest) ([]byte, bool) { return []byte(w.contents[d]), w.local[d] }
	spec.Request = w.request
	if w.IntN(4) == 0 {
		spec.Foresees = func(p string) bool { return len(p)%3 > 0 }
	}
	w.f = New(spec)
	go w.f.Run(w.Context())
}

// request checks what is requested.
func (w *world) request(files []File, _ int64) {
	for _, f := range files {
		d, ok := w.at[f.Path]
		switch {
		case !ok || d != f.Digest || d.SizeBytes() > maxFileBytes:
			w.Errorf("%s with %s is requested, which is %s", f.Path, f.Digest, d)
		case w.asked[f.Path] || w.opened[f.Path]:
			w.Errorf("%s is requested, but was before (%t) or is opened (%t)", f.Path, w.asked[f.Path], w.opened[f.Path])
		case !w.told[path.Base(f.Path)]:
			w.Errorf("%s is requested, which nothing mentions that is here", f.Path)
		}
		w.asked[f.Path] = true
		w.unread[f.Path] = d.SizeBytes()
		w.requests++
	}
	if len(files) > 0 {
		w.calls = append(w.calls, files)
	}
	var unread int64
	for _, bytes := range w.unread {
		unread += bytes
	}
	if most := FreeBytes + Credit*w.right + lateBytes*w.late; unread > most {
		w.Errorf("%d bytes are unread, of which %d may be", unread, most)
	}
}

// tell notes what a content mentions that is here now.
func (w *world) tell(d digest.Digest) {
	for _, word := range strings.FieldsFunc(w.contents[d], func(r rune) bool { return strings.ContainsRune("\"<>\n ", r) }) {
		w.told[path.Base(word)] = true
	}
}

// open has the action open a file.
func (w *world) open(at string) {
	if w.opened[at] {
		return
	}
	d, was := w.at[at], cas.Absent
	if w.local[d] {
		was = cas.Local
	}
	w.opened[at] = true
	delete(w.unread, at)
	if w.told[path.Base(at)] {
		w.right += d.SizeBytes()
		if !w.asked[at] {
			w.late++
		}
	}
	w.local[d] = true
	w.tell(d)
	w.f.Opened(at)
	w.f.Came(d, was)
}

// end ends a call: some files were local or come from elsewhere, some come, and some fail.
func (w *world) end(i int) {
	files := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	var fetched []digest.Digest
	var err error
	for _, f := range files {
		switch {
		case w.local[f.Digest] && !slices.Contains(fetched, f.Digest):
			delete(w.unread, f.Path)
		case w.IntN(8) == 0:
			err = cas.ErrNotFound // and parts of it came
			continue
		default:
			fetched = append(fetched, f.Digest)
		}
		w.local[f.Digest] = true
		w.tell(f.Digest)
	}
	w.f.Ended(files, fetched, err)
}

// TestCredit: whatever an action opens, and however calls end, only files are requested that one that
// is here mentions, each once and none that is opened, and within the credit.
func TestCredit(t *testing.T) {
	requests := 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.start()
			for range 150 {
				switch n := w.IntN(10); {
				case n < 4:
					w.open(w.paths[w.IntN(len(w.paths))])
				case n < 8 && len(w.calls) > 0:
					w.end(w.IntN(len(w.calls)))
				case n == 8:
					w.f.Learned()
				case n == 9 && w.IntN(20) == 0:
					w.f.Settled()
				}
				synctest.Wait()
			}
			requests += w.requests
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
	if requests < 3000 {
		t.Errorf("only %d files were requested, which proves little", requests)
	}
}
