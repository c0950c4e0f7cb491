package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/disk"
	livepb "github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// A rottingFarm is a farm whose disk gets bytes wrong.
type rottingFarm struct {
	*farm
	registry *prometheus.Registry
}

// newRottingFarm has input roots as o wants them, whose files are read after each use.
func newRottingFarm(t *testing.T, o vfs.Options, few farmOptions) *rottingFarm {
	t.Helper()
	o.VerifyEvery = -1
	registry := prometheus.NewRegistry()
	change := few.change
	few.change = func(options *Options) {
		options.Metrics = registry
		if change != nil {
			change(options)
		}
	}
	return &rottingFarm{newFarmWith(t, o, nil, few), registry}
}

// damagedRuns is the metric.
func (f *rottingFarm) damagedRuns(t *testing.T) (n int) {
	t.Helper()
	families, err := f.registry.Gather()
	check(t, err)
	for _, family := range families {
		if family.GetName() == "forerunner_worker_damaged_runs_total" {
			n = int(family.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return n
}

// assertRuns fails the test unless that many runs read damaged bytes, and that many blobs of the
// worker's store are set aside.
func (f *rottingFarm) assertRuns(t *testing.T, damaged int, aside int64) {
	t.Helper()
	if got := f.damagedRuns(t); got != damaged {
		t.Errorf("%d runs were damaged, want %d", got, damaged)
	}
	if got := f.local.Stats().AsideBlobs; got != aside {
		t.Errorf("%d blobs are aside, want %d", got, aside)
	}
}

// flip changes one byte of a file, and nothing else that stat(2) shows but the change time.
func flip(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	check(t, err)
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	check(t, err)
	var b [1]byte
	_, err = file.ReadAt(b[:], 0)
	check(t, err)
	b[0] ^= 1
	_, err = file.WriteAt(b[:], 0)
	check(t, err)
	check(t, file.Close())
	check(t, os.Chtimes(name, info.ModTime(), info.ModTime()))
}

// rot flips a byte of the blob in the worker's store.
func (f *farm) rot(t *testing.T, content string) {
	t.Helper()
	flip(t, filepath.Join(f.local.Dir(), disk.BlobPath(digestOfBytes(content))))
}

// rotCopy flips a byte of every copy of it that hard links lead to.
func (f *farm) rotCopy(t *testing.T, content string) {
	t.Helper()
	found := map[uint64]bool{} // a copy has several names
	check(t, filepath.WalkDir(filepath.Join(filepath.Dir(f.local.Dir()), "upper", ".links"),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil || found[info.Sys().(*syscall.Stat_t).Ino] {
				return err
			}
			if b, err := os.ReadFile(path); err == nil && string(b) == content {
				flip(t, path)
				found[info.Sys().(*syscall.Stat_t).Ino] = true
			}
			return nil
		}))
	if len(found) == 0 {
		t.Fatalf("there is no copy of %q", content)
	}
}

// forget takes a blob from storage.
func (f *farm) forget(t *testing.T, content string) {
	t.Helper()
	check(t, os.Remove(filepath.Join(f.storage.Dir(), disk.BlobPath(digestOfBytes(content)))))
}

// assertOutput fails the test unless the action's only output file is content, for the client and
// in the action cache.
func (f *rottingFarm) assertOutput(t *testing.T, j *job, r *repb.ExecuteResponse, content string) {
	t.Helper()
	assertOK(t, r)
	for _, result := range []*repb.ActionResult{r.GetResult(), f.cached(t, j)} {
		if files := result.GetOutputFiles(); len(files) != 1 || f.read(t, files[0].GetDigest()) != content {
			t.Errorf("outputs are %v, want %q", files, content)
		}
	}
}

var rottingRoots = map[string]vfs.Options{
	"fuse":         {Method: vfs.FUSE},
	"fuse, cached": {Method: vfs.FUSE, DisablePassthrough: true},
	"memory":       {Method: vfs.FUSE, UpperMemory: 64 << 20},
	"links":        {Method: vfs.HardLink},
	"bare links":   {Method: vfs.HardLink, DisableOverlay: true},
}

// TestRotBetweenActions flips a bit of an unused blob.
func TestRotBetweenActions(t *testing.T) {
	for name, o := range rottingRoots {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, o, farmOptions{})
			in := tree{"in": "good bytes"}
			assertOK(t, f.run(t, spec{inputs: in, shell: "cat in"}))
			f.rot(t, "good bytes")
			damaged := 1
			if o.Method == vfs.HardLink {
				in = tree{"in": executable("good bytes")} // without a copy so far
				damaged = 0                               // that is seen while it is made
			}
			j := f.start(t, spec{inputs: in, shell: "cat in > out; echo ran", paths: []string{"out"}})
			r := j.result(t)
			f.assertOutput(t, j, r, "good bytes")
			if got := string(r.GetResult().GetStdoutRaw()); got != "ran\n" {
				t.Errorf("stdout is %q", got)
			}
			f.assertRuns(t, damaged, 1)
			f.assertGood(t)
		})
	}
}

// TestRotWhileACommandRuns has it flip before the command reads it, which fails for it.
func TestRotWhileACommandRuns(t *testing.T) {
	for name, o := range rottingRoots {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, o, farmOptions{})
			check(t, f.local.PutBytes(t.Context(), digestOfBytes("good bytes"), []byte("good bytes")))
			s, open := gated(t, "unused")
			s = spec{
				env: s.env, inputs: tree{"in": "good bytes"}, paths: []string{"out"},
				shell: untilOpen + "; cat in > out; [ $(cat in | head -c 4) = good ] || { echo rotten >&2; exit 3; }",
			}
			j := f.start(t, s)
			j.reaches(t, "running")
			aside := int64(1)
			if o.Method == vfs.HardLink {
				f.rotCopy(t, "good bytes")
				aside = 0
			} else {
				f.rot(t, "good bytes")
			}
			open()
			f.assertOutput(t, j, j.result(t), "good bytes")
			f.assertRuns(t, 1, aside)
			f.assertGood(t)
		})
	}
}

// TestRotOfAnInputThatIsReturned: an unread input is damaged. The damage must be found before the
// result names it.
func TestRotOfAnInputThatIsReturned(t *testing.T) {
	for name, c := range map[string]spec{
		"a file":   {shell: "mv d/in out", paths: []string{"out"}},
		"a folder": {shell: "true", paths: []string{"d"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
			check(t, f.local.PutBytes(t.Context(), digestOfBytes("good bytes"), []byte("good bytes")))
			f.rot(t, "good bytes")
			c.inputs = tree{"d/in": "good bytes"}
			assertOK(t, f.run(t, c))
			f.assertRuns(t, 1, 1)
		})
	}
}

// TestRotOfWhatStorageHas: a blob that storage reports as present, so that the worker does not
// upload it, must be right when a result names it.
func TestRotOfWhatStorageHas(t *testing.T) {
	for name, c := range map[string]spec{
		"an output":     {shell: "echo made > out", paths: []string{"out"}},
		"an input":      {shell: "mv in out", paths: []string{"out"}, inputs: tree{"in": "made\n"}},
		"one of a tree": {shell: "mkdir d && mv in d/out", paths: []string{"d"}, inputs: tree{"in": "made\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
			d := f.blob(t, "made\n")
			check(t, f.local.PutBytes(t.Context(), d, []byte("made\n")))
			j := f.start(t, c)
			flip(t, filepath.Join(f.storage.Dir(), disk.BlobPath(d)))
			assertOK(t, j.result(t))
			if f.read(t, d.Proto()) != "made\n" {
				t.Error("storage has not got what the result names")
			}
			f.assertRuns(t, 0, 0)
		})
	}
}

// A viewer watches what the commands of a worker print to stdout.
type viewer struct {
	grpc.ClientStream
	ctx     context.Context
	watches chan *livepb.Watch
	chunks  chan *livepb.Chunk
}

func (v *viewer) Serve(ctx context.Context, _ *livepb.ServeRequest, _ ...grpc.CallOption) (livepb.Outputs_ServeClient, error) {
	return &viewer{ctx: ctx, watches: v.watches}, nil
}

func (v *viewer) Recv() (*livepb.Watch, error) {
	select {
	case w := <-v.watches:
		return w, nil
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	}
}

func (v *viewer) Push(_ context.Context, c *livepb.Chunk, _ ...grpc.CallOption) (*livepb.Pushed, error) {
	if len(c.GetData()) > 0 || c.GetEnd() || c.GetRun() > 1 {
		v.chunks <- &livepb.Chunk{Run: c.GetRun(), Data: bytes.Clone(c.GetData()), End: c.GetEnd()}
	}
	return &livepb.Pushed{}, nil
}

func (v *viewer) Tell(context.Context, *livepb.Report, ...grpc.CallOption) (*livepb.Told, error) {
	return &livepb.Told{}, nil
}

// TestRotIsToldToWhoWatches: the output of a void run must be marked as such before the next run
// ends.
func TestRotIsToldToWhoWatches(t *testing.T) {
	v := &viewer{watches: make(chan *livepb.Watch, 1), chunks: make(chan *livepb.Chunk, 100)}
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{change: func(o *Options) { o.Live = v }})
	gate := newGate(t)
	check(t, f.local.PutBytes(t.Context(), digestOfBytes("good bytes"), []byte("good bytes")))
	j := f.start(t, spec{
		env: map[string]string{"GATE": gate}, inputs: tree{"in": "good bytes"},
		shell: untilOpen + "; [ $(cat in | head -c 4) = good ] || exit 3; GATE=$GATE.2; " + untilOpen,
	})
	j.reaches(t, "running")
	v.watches <- &livepb.Watch{Id: "stdout", Action: j.digest.String()}
	var got []string
	for c := range v.chunks {
		got = append(got, fmt.Sprintf("%d %q %t", c.GetRun(), c.GetData(), c.GetEnd()))
		if c.GetEnd() {
			break
		}
		switch {
		case len(got) == 1:
			f.rot(t, "good bytes")
			check(t, os.WriteFile(gate, nil, 0o600))
		case c.GetRun() > 1 && len(c.GetData()) > 0:
			check(t, os.WriteFile(gate+".2", nil, 0o600))
		}
	}
	assertOK(t, j.result(t))
	f.assertRuns(t, 1, 1)
	mark := slices.Index(got, `2 "" false`)
	if mark < 1 || slices.ContainsFunc(got[:mark], func(c string) bool { return !strings.HasPrefix(c, "1 ") || strings.HasSuffix(c, "true") }) {
		t.Errorf("who watches got %q", got)
	}
}

// TestRotIsNotRemembered: the reads of a run that was affected by a wrong byte must not be
// recorded.
func TestRotIsNotRemembered(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{
		change: func(o *Options) { o.Reuse, o.Setting.Program = reuse.New(&reuseStore{}), "test" },
	})
	const right, wrong = "c", "b" // one bit apart
	check(t, f.local.PutBytes(t.Context(), digestOfBytes(right), []byte(right)))
	f.rot(t, right)
	s := spec{inputs: tree{"which": right, right: "right", wrong: "wrong"}, shell: "cat $(cat which) > out", paths: []string{"out"}}
	j := f.start(t, s)
	f.assertOutput(t, j, j.result(t), "right")
	f.assertRuns(t, 1, 1)
	s.inputs = s.inputs.edited(tree{wrong: "edited"})
	if r := f.run(t, s); reusedFrom(t, r) == nil {
		t.Errorf("the run is not reused: %v", r)
	}
}

// TestRotOfATool: a command that cannot start because of damage is started again.
func TestRotOfATool(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
	const tool = "#!/bin/sh\necho made > out\n"
	in := tree{"tool": executable(tool)}
	assertOK(t, f.run(t, spec{inputs: in, args: []string{"./tool"}}))
	f.rot(t, tool)
	j := f.start(t, spec{inputs: in, args: []string{"./tool"}, paths: []string{"out"}})
	f.assertOutput(t, j, j.result(t), "made\n")
	f.assertRuns(t, 1, 1)
}

// TestRotOfTheOnlyCopy: the client is to upload it again.
func TestRotOfTheOnlyCopy(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
	in := tree{"in": "the only one"}
	assertOK(t, f.run(t, spec{inputs: in, shell: "cat in"}))
	root := f.put(t, in)
	f.rot(t, "the only one")
	f.forget(t, "the only one")
	j := f.start(t, spec{root: root, shell: "cat in > out || echo lost > out", paths: []string{"out"}})
	r := j.result(t)
	assertCode(t, r, codes.FailedPrecondition, "")
	assertMissing(t, r, digestOfBytes("the only one"))
	f.assertNotCached(t, j)
	f.assertRuns(t, 1, 1)
	f.blob(t, "the only one")
	j = f.start(t, spec{inputs: in, shell: "cat in > out", paths: []string{"out"}})
	f.assertOutput(t, j, j.result(t), "the only one")
}

// TestRotOfADirectory: names come from blobs, too.
func TestRotOfADirectory(t *testing.T) {
	for name, o := range rottingRoots {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, o, farmOptions{})
			root := f.put(t, tree{"a": "good bytes", "b": "bad bytes"})
			raw, err := f.storage.ReadBlob(t.Context(), root)
			check(t, err)
			check(t, f.local.PutBytes(t.Context(), root, raw))
			// Each name becomes the other one.
			b := bytes.Replace(bytes.Replace(raw, []byte("\x01a"), []byte("\x01c"), 1), []byte("\x01b"), []byte("\x01d"), 1)
			file, err := os.OpenFile(filepath.Join(f.local.Dir(), disk.BlobPath(root)), os.O_WRONLY, 0)
			check(t, err)
			_, err = file.Write(b)
			check(t, err)
			check(t, file.Close())
			j := f.start(t, spec{root: root, shell: "cat a > out", paths: []string{"out"}})
			f.assertOutput(t, j, j.result(t), "good bytes")
			f.assertRuns(t, 0, 1)
		})
	}
}

// TestRotAgainAndAgain: a command that reads damaged bytes in each run ends with an error.
func TestRotAgainAndAgain(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
	d := digestOfBytes("never right")
	blob := filepath.Join(f.local.Dir(), disk.BlobPath(d))
	j := f.start(t, spec{
		inputs: tree{"in": "never right"}, paths: []string{"out"}, env: map[string]string{"BLOB": blob},
		shell: `cat in > out; printf X | dd of="$BLOB" conv=notrunc status=none`,
	})
	r := j.result(t)
	assertCode(t, r, codes.Unavailable, d.String())
	f.assertNotCached(t, j)
	if got := f.damagedRuns(t); got != maxRuns {
		t.Errorf("%d runs were damaged, want %d", got, maxRuns)
	}
	f.assertGood(t)
}

// TestRotOfAnOutput: storage does not take it, and the command runs again.
func TestRotOfAnOutput(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
	asked, release := f.reads.tells(asking), f.reads.hold(asking)
	defer release()
	j := f.start(t, spec{shell: "echo made > out", paths: []string{"out"}})
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("nobody asks what storage lacks")
	}
	f.rot(t, "made\n")
	release()
	f.assertOutput(t, j, j.result(t), "made\n")
	f.assertRuns(t, 1, 1)
}

// TestUploadThatArrivesWrong is sent again if what the worker has is right.
func TestUploadThatArrivesWrong(t *testing.T) {
	f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
	s := spec{shell: "echo made 2 > out", paths: []string{"out"}, root: f.put(t, tree{"in": "x"})}
	f.reads.misread(1)
	j := f.start(t, s)
	f.assertOutput(t, j, j.result(t), "made 2\n")
	f.assertRuns(t, 0, 0)
}

// TestRotFindsASlot: an action that must run again gets the slot that is reserved for a future
// action. An action that waits to report does not wait for one that waits for its slot.
func TestRotFindsASlot(t *testing.T) {
	for _, widths := range [][3]int{{0, 1, 1}, {1, 1, 1}, {0, 2, 0}, {0, 2, 1}} {
		t.Run(fmt.Sprint(widths), func(t *testing.T) {
			f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{
				slots: widths[1], change: func(o *Options) { o.FetchWidth, o.ReportWidth = widths[0], widths[2] },
			})
			var js []*job
			const actions = 6
			for i := range actions {
				content := fmt.Sprintf("good %d", i)
				check(t, f.local.PutBytes(t.Context(), digestOfBytes(content), []byte(content)))
				f.rot(t, content)
				s := spec{inputs: tree{"in": content}, shell: "cat in > out", paths: []string{"out"}}
				js = append(js, f.start(t, s))
				if i == 0 {
					f.assertOutput(t, js[0], js[0].result(t), content)
				}
			}
			for i, j := range js[1:] {
				f.assertOutput(t, j, j.result(t), fmt.Sprintf("good %d", i+1))
			}
			f.assertRuns(t, actions, actions)
		})
	}
}

// readImageFarm is one whose files have been read.
func readImageFarm(t *testing.T) (f *rottingFarm, in func(own string) tree) {
	t.Helper()
	return newImageFarm(t, farmOptions{}, "cat sdk/*/file > /dev/null")
}

func (f *farm) awaitImage(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); f.roots.Images() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is no metadata image")
		}
	}
}

// TestRotBehindAnImage: files that the kernel reads without telling the worker are verified,
// however they are used.
func TestRotBehindAnImage(t *testing.T) {
	f, in := readImageFarm(t)
	for i, c := range []struct{ shell, want string }{
		{"cat sdk/lib7/file > out", "library 7"},
		{"echo -n more >> sdk/lib7/file; mv sdk/lib7/file out", "library 7more"},
		{"truncate -s 3 sdk/lib7/file; mv sdk/lib7/file out", "lib"},
		{"mv sdk/lib7/file out", "library 7"},
		{"ln sdk/lib7/file out", "library 7"},
	} {
		f.rot(t, "library 7")
		j := f.start(t, spec{inputs: in(fmt.Sprint("own ", i)), shell: c.shell, paths: []string{"out"}})
		f.assertOutput(t, j, j.result(t), c.want)
		if got := f.damagedRuns(t); got != i+1 {
			t.Errorf("%s: %d runs were damaged, want %d", c.shell, got, i+1)
		}
		// Possibly no process has read it the second time.
		assertOK(t, f.run(t, spec{inputs: in(fmt.Sprint("own ", i)), shell: "cat sdk/lib7/file"}))
	}
}

// TestRotOfAnImage: an image that shows one file as another is not shown again.
func TestRotOfAnImage(t *testing.T) {
	f, in := readImageFarm(t)
	rotImage(t, f.local.Dir(), disk.BlobPath(digestOfBytes("library 7")), disk.BlobPath(digestOfBytes("library 8")))
	j := f.start(t, spec{inputs: in("own"), shell: "cat sdk/lib7/file > out", paths: []string{"out"}})
	f.assertOutput(t, j, j.result(t), "library 7")
	f.assertRuns(t, 1, 0)
	j = f.start(t, spec{inputs: in("own 2"), shell: "cat sdk/lib7/file > out", paths: []string{"out"}})
	f.assertOutput(t, j, j.result(t), "library 7")
	f.assertRuns(t, 1, 0)
}

// rotImage writes another text in the place of one in the images in dir, which have no names.
func rotImage(t *testing.T, dir, text, other string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	for _, fd := range fds {
		name := filepath.Join("/proc/self/fd", fd.Name())
		if to, err := os.Readlink(name); err != nil || !strings.HasPrefix(to, dir) || !strings.HasSuffix(to, "(deleted)") {
			continue
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		check(t, err)
		all, err := io.ReadAll(file)
		check(t, err)
		at := bytes.Index(all, []byte(text))
		if at < 0 {
			t.Fatalf("%s does not have %s", name, text)
		}
		_, err = file.WriteAt([]byte(other), int64(at))
		check(t, err)
		check(t, file.Close())
		return
	}
	t.Fatal("there is no file of an image")
}
