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

// A world is an input root of headers that include others, with a storage and an action. It knows by
// simpler rules than a Follower what may be requested.
type world struct {
	*hostile
	*rand.Rand
	root  digest.Digest
	paths []string
	at    map[string]digest.Digest
	local map[digest.Digest]bool

	f        *Follower
	foresees func(string) bool // nil: there is no profile
	calls    [][]File          // under way
	asked    map[string]bool
	unread   map[string]int64 // bytes of requested files that may be coming or here
	opened   map[string]bool
	told     map[string]bool // last components of the paths in all contents that are local
	lacking  bool            // there is no profile, or it did not foresee an opened file
	lacks    int64           // opened files that the profile lacks
	delayed  map[string]bool // requested files that the limit may have delayed
	// Of files that the profile has, and that it lacks: bytes of opened ones that are told, and how
	// many of them the limit may have delayed.
	right, late [2]int64
	requests    int
	delays      int // requests when little is left of the limit
}

// newWorld returns a random world.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		hostile: newHostile(t), Rand: rand.New(rand.NewPCG(seed, 20)), at: map[string]digest.Digest{}, local: map[digest.Digest]bool{},
		asked: map[string]bool{}, unread: map[string]int64{}, opened: map[string]bool{}, told: map[string]bool{}, delayed: map[string]bool{},
	}
	folders := []string{"", "a/", "a/b/", "c/"}
	for i := range 20 + w.IntN(200) {
		w.paths = append(w.paths, fmt.Sprintf("%sf%03d.h", folders[w.IntN(len(folders))], i))
	}
	slices.Sort(w.paths)
	for _, at := range w.paths {
		w.at[at] = w.content(at)
	}
	w.root = w.grow("")
	return w
}

// grow makes the folder at a path, with symlinks to others and to themselves.
func (w *world) grow(at string) digest.Digest {
	m := &repb.Directory{}
	for _, p := range w.paths {
		if folder, name := path.Split(p); folder == at {
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: w.at[p].Proto()})
		}
	}
	for _, name := range map[string][]string{"": {"a", "c"}, "a/": {"b"}}[at] {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: w.grow(at + name + "/").Proto()})
	}
	for i, target := range []string{"a", "../a/b", "s2", "../../..", "/", "."} {
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: fmt.Sprint("s", i), Target: target})
	}
	return w.folder(m)
}

// content returns the digest of a file that mentions others. Some have the same content.
func (w *world) content(at string) digest.Digest {
	var text strings.Builder
	for range w.IntN(20) {
		other := w.paths[w.IntN(len(w.paths))]
		if w.IntN(4) == 0 {
			other = []string{"s0/", "c/s1/", "../", "s5/s0/", "s2/"}[w.IntN(5)] + path.Base(other)
		}
		fmt.Fprintf(&text, []string{"#include \"%s\"\n", "#include <%s>\n", "#define X \"%s\"\n"}[w.IntN(3)], other)
	}
	about := at + text.String()
	if w.IntN(4) == 0 {
		about = text.String()
	}
	size := []int64{1, 20_000, 300_000, 500_000, maxFileBytes, maxFileBytes + 1}[w.IntN(6)]
	d, err := digest.Parse(digest.SHA256, digest.Of(digest.SHA256, []byte(about)).Hash(), size)
	if err != nil {
		w.Fatal(err)
	}
	w.contents[d] = text.String()
	w.local[d] = w.IntN(5) == 0
	return d
}

// strange returns 1 for a file that the profile lacks, 0 for any other.
func (w *world) strange(at string) int {
	if w.foresees != nil && !w.foresees(at) {
		return 1
	}
	return 0
}

// short reports whether the limit may delay a request.
func (w *world) short(at string) bool {
	of := w.strange(at)
	return w.unreadBytes(of)+maxFileBytes > (w.limit(of)-FreeBytes/reservedPart)/farPart
}

// limit returns how many bytes may be unread of files that the profile has, or lacks.
func (w *world) limit(strange int) int64 {
	free := int64(FreeBytes)
	if strange == 1 {
		free = min(free, freeOfLack*w.lacks)
	}
	return free + Credit*w.right[strange] + lateBytes*w.late[strange]
}

func (w *world) unreadBytes(strange int) (bytes int64) {
	for at, n := range w.unread {
		if w.strange(at) == strange {
			bytes += n
		}
	}
	return bytes
}

// start starts the Follower.
func (w *world) start() {
	spec := w.spec(w.root)
	spec.Contents = func(d digest.Digest) ([]byte, bool) { return []byte(w.contents[d]), w.local[d] }
	spec.Request = w.request
	if w.IntN(4) == 0 {
		w.foresees = func(p string) bool { return len(p)%3 > 0 }
	}
	spec.Foresees, w.lacking = w.foresees, w.foresees == nil
	w.f = New(spec)
	w.f.KnowCommand(Command{Args: []string{"cc", "-I."}})
	go w.f.Run(w.Context())
}

// request checks what is requested.
func (w *world) request(files []File) {
	for _, f := range files {
		d, ok := w.at[f.Path]
		switch {
		case !ok || d != f.Digest || d.SizeBytes() > maxFileBytes:
			w.Errorf("%s with %s is requested, which is %s", f.Path, f.Digest, d)
		case w.asked[f.Path] || w.opened[f.Path]:
			w.Errorf("%s is requested, but was before (%t) or is opened (%t)", f.Path, w.asked[f.Path], w.opened[f.Path])
		case !w.told[path.Base(f.Path)]:
			w.Errorf("%s is requested, which nothing mentions that is here", f.Path)
		case !w.lacking:
			w.Errorf("%s is requested, although the profile lacked nothing", f.Path)
		}
		w.asked[f.Path] = true
		w.unread[f.Path] = d.SizeBytes()
		w.delayed[f.Path] = w.short(f.Path)
		w.requests++
	}
	w.calls = append(w.calls, files)
	for strange := range 2 {
		unread, most := w.unreadBytes(strange), w.limit(strange)
		if unread > most {
			w.Errorf("%d bytes are unread, of which %d may be", unread, most)
		}
		if unread > most/2 {
			w.delays++
		}
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
	known, of := Lacked, w.strange(at)
	if w.foresees != nil && of == 0 {
		known = Lacked + Foresight(w.IntN(3))
	}
	w.lacks += int64(of)
	early := !w.lacking
	w.lacking = w.lacking || known != Foreseen
	delete(w.unread, at)
	if w.told[path.Base(at)] {
		w.right[of] += d.SizeBytes()
		if w.delayed[at] || !w.asked[at] && !early && w.short(at) {
			w.late[of]++
		}
	}
	w.local[d] = true
	w.tell(d)
	w.f.Opened(at, known)
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
	requests, delays := 0, 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.start()
			for range 100 {
				switch n := w.IntN(10); {
				case n < 2:
					w.open(w.paths[w.IntN(len(w.paths))])
				case n < 9 && len(w.calls) > 0:
					w.end(w.IntN(len(w.calls)))
				case n == 9:
					w.f.Settled()
				}
				synctest.Wait()
			}
			requests, delays = requests+w.requests, delays+w.delays
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
	t.Logf("%d files were requested, %d times near the limit", requests, delays)
	if requests < 4000 || delays < 500 {
		t.Errorf("%d files were requested, %d times near the limit, which proves little", requests, delays)
	}
}
