package pastruns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

const fn = digest.SHA256

var here, elsewhere = strings.Repeat("h", 32), strings.Repeat("e", 32)

// fakeFarm is a storage, and the records that workers share. Its functions may be replaced.
type fakeFarm struct {
	mu      sync.Mutex
	blobs   map[digest.Digest][]byte
	lost    map[digest.Digest]bool
	records map[record.Key][]byte
	results map[digest.Digest]*repb.ActionResult
	reads   map[digest.Digest]int
	hangs   bool
	refuses error // what PutActionResult returns
	t       *testing.T
	// registry is that of the last Finder.
	registry *prometheus.Registry
}

func newFakeFarm(t *testing.T) *fakeFarm {
	return &fakeFarm{
		t: t, blobs: map[digest.Digest][]byte{}, lost: map[digest.Digest]bool{}, records: map[record.Key][]byte{},
		results: map[digest.Digest]*repb.ActionResult{}, reads: map[digest.Digest]int{},
	}
}

func (f *fakeFarm) Get(ctx context.Context, k record.Key) ([]byte, error) {
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if b, ok := f.records[k]; ok {
		return b, nil
	}
	return nil, record.ErrNotFound
}

func (f *fakeFarm) Put(_ context.Context, k record.Key, b []byte) error {
	f.records[k] = b
	return nil
}

func (f *fakeFarm) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[d]++
	if b, ok := f.blobs[d]; ok {
		return b, nil
	}
	return nil, digest.ErrNotFound
}

func (f *fakeFarm) FindMissing(_ context.Context, ds []digest.Digest) (missing []digest.Digest, err error) {
	for _, d := range ds {
		if f.lost[d] {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

func (f *fakeFarm) PutActionResult(_ context.Context, d digest.Digest, r *repb.ActionResult) error {
	if f.refuses == nil {
		f.results[d] = proto.CloneOf(r)
	}
	return f.refuses
}

func (f *fakeFarm) finder() *Finder {
	f.t.Helper()
	f.registry = prometheus.NewRegistry()
	found, err := New(Options{
		SharedRuns: f, Storage: func(string, digest.Function) Storage { return f }, Logger: zap.NewNop(), Metrics: f.registry,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

// counted returns the outcomes that the Finder counts.
func (f *fakeFarm) counted() (outcomes string) {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			outcomes += strings.Repeat(m.GetLabel()[0].GetValue(), int(m.GetCounter().GetValue()))
		}
	}
	return outcomes
}

func (f *fakeFarm) put(m proto.Message) *repb.Digest {
	f.t.Helper()
	d, b, err := digest.OfMessage(fn, m)
	if err != nil {
		f.t.Fatal(err)
	}
	f.blobs[d] = b
	return d.Proto()
}

// A project is the contents of an input tree.
type project struct {
	source, readme, link, unread string
	executable, header           bool     // main.c is executable; src/config.h exists
	listed                       []string // names in the folder list
}

func (f *fakeFarm) root(p project) digest.Digest {
	f.t.Helper()
	file := func(name, content string) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: digest.Of(fn, []byte(content)).Proto()}
	}
	src := &repb.Directory{Files: []*repb.FileNode{file("main.c", p.source)}}
	src.Files[0].IsExecutable = p.executable
	if p.header {
		src.Files = append([]*repb.FileNode{file("config.h", "")}, src.Files...)
	}
	list := &repb.Directory{}
	for _, name := range p.listed {
		list.Files = append(list.Files, file(name, p.unread))
	}
	deep := &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "deep", Digest: f.put(&repb.Directory{Files: []*repb.FileNode{file("same", "same")}})}}}
	d, err := digest.FromProto(fn, f.put(&repb.Directory{
		Files: []*repb.FileNode{file("README", p.readme)}, Symlinks: []*repb.SymlinkNode{{Name: "link", Target: p.link}},
		Directories: []*repb.DirectoryNode{{Name: "list", Digest: f.put(list)}, {Name: "same", Digest: f.put(deep)}, {Name: "src", Digest: f.put(src)}},
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

var (
	original = project{source: "int main;", readme: "1", link: "a", listed: []string{"a"}}
	output   = digest.Of(fn, []byte("output"))
	command  = digest.Of(fn, []byte("gcc"))
)

// action returns the action of a compiler on a project.
func (f *fakeFarm) action(p project) Action {
	f.t.Helper()
	m := &repb.Action{CommandDigest: command.Proto(), InputRootDigest: f.root(p).Proto()}
	d, err := digest.FromProto(fn, f.put(m))
	if err != nil {
		f.t.Fatal(err)
	}
	return Action{Digest: d, Message: m, Circumstances: []string{here}}
}

// ran has a worker share a run of an action, which reads main.c, the link and the folder list, and
// looks for config.h in vain.
func (f *fakeFarm) ran(a Action, changes ...func(*reuse.Run)) {
	f.t.Helper()
	seen := &lookback.Recorder{}
	for path, look := range map[string]tree.Look{
		"src": tree.LookUp, "src/config.h": tree.LookUp, "src/main.c": tree.LookUp | tree.LookInside, "link": tree.LookInside,
		"list": tree.LookThrough, "same/deep/same": tree.LookInside,
	} {
		seen.Look(path, look)
	}
	root, err := digest.FromProto(fn, a.Message.GetInputRootDigest())
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := lookback.Tree{Root: root, Source: &source{storage: f, cache: newCache()}}.Encode(f.t.Context(), seen, lookback.Run{
		Action: a.Digest, Worker: "w", Completed: time.Unix(1, 0), Blobs: []digest.Digest{output},
		Result: &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: "out", Digest: output.Proto()}}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, change := range changes {
		change(m)
	}
	b, err := sharedruns.Encode(&reuse.Record{Runs: []*reuse.Run{m}})
	if err != nil {
		f.t.Fatal(err)
	}
	reduced, _ := sharedruns.Reduced(fn, a.Message)
	f.records[sharedruns.Key("", reduced, []byte(a.Circumstances[0]))] = b
	clear(f.reads)
}

// TestFind changes one thing after a run, and wants its result to be reused exactly if a worker
// would, which would see the same.
func TestFind(t *testing.T) {
	same := func(*project) {}
	failed := func(m *reuse.Run) { m.Result, _ = proto.Marshal(&repb.ActionResult{ExitCode: 1}) }
	for name, c := range map[string]struct {
		edit func(*project)
		run  func(*reuse.Run)
		farm func(*fakeFarm)
		ask  func(*Action)
		want lookback.Outcome
	}{
		"nothing":                    {edit: same, want: lookback.Reused},
		"a file that nobody read":    {edit: func(p *project) { p.readme = "2" }, want: lookback.Reused},
		"an unread file in a folder": {edit: func(p *project) { p.unread = "other" }, want: lookback.Reused},
		"a file that was read":       {edit: func(p *project) { p.source = "int other;" }, want: lookback.Differs},
		"the mode of a file":         {edit: func(p *project) { p.executable = true }, want: lookback.Differs},
		"a link that was read":       {edit: func(p *project) { p.link = "b" }, want: lookback.Differs},
		"a folder that was listed":   {edit: func(p *project) { p.listed = []string{"a", "b"} }, want: lookback.Differs},
		"a file that was missing":    {edit: func(p *project) { p.header = true }, want: lookback.Differs},
		"another machine":            {edit: same, ask: func(a *Action) { a.Circumstances = []string{elsewhere} }, want: lookback.Unknown},
		"one of several machines":    {edit: same, ask: func(a *Action) { a.Circumstances = []string{elsewhere, here} }, want: lookback.Reused},
		"another instance name":      {edit: same, ask: func(a *Action) { a.Instance = "other" }, want: lookback.Unknown},
		"another command":            {edit: same, ask: func(a *Action) { a.Message.CommandDigest = output.Proto() }, want: lookback.Unknown},
		"an output is gone":          {edit: same, farm: func(f *fakeFarm) { f.lost[output] = true }, want: lookback.Gone},
		"a run that failed":          {edit: same, run: failed, want: lookback.Unknown},
		"a run of no action":         {edit: same, run: func(m *reuse.Run) { m.Action = nil }, want: lookback.Unknown},
		"a run that saw nothing":     {edit: same, run: func(m *reuse.Run) { m.Root = nil }, want: lookback.Unknown},
		"a damaged record": {edit: same, farm: func(f *fakeFarm) {
			for k, b := range f.records {
				b[len(b)/2] ^= 1
				f.records[k] = b
			}
		}, want: lookback.Unknown},
		"no directory": {edit: func(p *project) { p.readme = "2" }, farm: func(f *fakeFarm) { clear(f.blobs) }, want: lookback.Failed},
		"damaged directories": {edit: func(p *project) { p.readme = "2" }, farm: func(f *fakeFarm) {
			for d := range f.blobs {
				f.blobs[d] = nil // which is an empty directory
			}
		}, want: lookback.Failed},
		"a result that the storage refuses": {edit: same, farm: func(f *fakeFarm) {
			f.refuses = status.Error(codes.FailedPrecondition, "upload its outputs first")
		}, want: lookback.Failed},
		"a storage that takes no results": {edit: same, farm: func(f *fakeFarm) {
			f.refuses = status.Error(codes.PermissionDenied, "not yours")
		}, want: lookback.Reused},
		"a storage that did not check the result": {edit: same, farm: func(f *fakeFarm) {
			f.refuses = status.Error(codes.Unavailable, "it is full")
		}, want: unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeFarm(t)
			was := f.action(original)
			if c.run == nil {
				c.run = func(*reuse.Run) {}
			}
			f.ran(was, c.run)
			edited := original
			c.edit(&edited)
			a := f.action(edited)
			if c.farm != nil {
				c.farm(f)
			}
			if c.ask != nil {
				c.ask(&a)
			}
			finder := f.finder()
			run, ok := finder.Find(t.Context(), a)
			if counted := f.counted(); counted != string(c.want) || ok != (c.want == lookback.Reused) {
				t.Fatalf("reused %t, the outcome is %q, want %s", ok, counted, c.want)
			}
			if !ok {
				if len(f.results) > 0 {
					t.Error("a result was stored that was not reused")
				}
				return
			}
			if run.Action != was.Digest || run.Result.GetOutputFiles()[0].GetDigest().GetHash() != output.Hash() {
				t.Errorf("reused %v", run)
			}
			var m actionstats.Reused
			if err := run.Result.GetExecutionMetadata().GetAuxiliaryMetadata()[0].UnmarshalTo(&m); err != nil || !m.GetScheduler() ||
				m.GetAction() != was.Digest.String() || m.GetWorker() != "w" || m.GetPaths() == 0 {
				t.Errorf("metadata %v, %v", &m, err)
			}
			if f.refuses == nil && !proto.Equal(f.results[a.Digest], run.Result) {
				t.Errorf("stored %v", f.results)
			}
		})
	}
}

// TestUnwanted: nothing is searched for actions that no worker would reuse, or that must run.
func TestUnwanted(t *testing.T) {
	f := newFakeFarm(t)
	a := f.action(original)
	f.ran(a)
	nobody, uncached := a, a
	nobody.Circumstances = nil
	uncached.Message = proto.CloneOf(a.Message)
	uncached.Message.DoNotCache = true
	for name, a := range map[string]Action{"no worker shares runs": nobody, "do_not_cache": uncached} {
		if _, ok := f.finder().Find(t.Context(), a); ok {
			t.Errorf("%s: a run was reused", name)
		}
	}
	if _, ok := (*Finder)(nil).Find(t.Context(), a); ok {
		t.Error("no Finder finds a run")
	}
}

// TestUnchangedDirectories: directories with the same digest are not read, nor those in which the
// run looked up nothing; the next search reads none again.
func TestUnchangedDirectories(t *testing.T) {
	f := newFakeFarm(t)
	f.ran(f.action(original))
	edited := original
	edited.readme = "2"
	a, finder := f.action(edited), f.finder()
	for _, want := range []int{1, 0} { // the root
		clear(f.reads)
		if _, ok := finder.Find(t.Context(), a); !ok {
			t.Fatal("no run was found")
		}
		if len(f.reads) != want {
			t.Errorf("%d directories were read, want %d", len(f.reads), want)
		}
	}
	a.Instance = "other" // which may not have them
	if _, ok := finder.cache.Get(directoryKey{"other", f.root(edited)}); ok {
		t.Error("directories are shared with another instance name")
	}
}

// TestSlowStorage: a storage that hangs delays one action, by a second at most, and the next ones
// not at all; then it is asked again.
func TestSlowStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFarm(t)
		a := f.action(original)
		f.ran(a)
		finder := f.finder()
		f.hangs = true
		for i, most := range []time.Duration{findTimeout, 0, 0} {
			began := time.Now()
			if _, ok := finder.Find(t.Context(), a); ok || time.Since(began) > most {
				t.Errorf("%d: found %t after %s", i, ok, time.Since(began))
			}
		}
		f.hangs = false
		time.Sleep(time.Minute)
		if _, ok := finder.Find(t.Context(), a); !ok {
			t.Error("a storage that works again is not asked")
		}
	})
}

// TestManySearches: no more than maxSearches run; further ones wait, not for long, and that is no
// fault of the storage.
func TestManySearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFarm(t)
		a := f.action(original)
		f.ran(a)
		finder := f.finder()
		for range maxSearches {
			finder.searches <- struct{}{}
		}
		began := time.Now()
		if _, ok := finder.Find(t.Context(), a); ok || time.Since(began) != waitTimeout {
			t.Errorf("found %t after %s", ok, time.Since(began))
		}
		<-finder.searches
		if _, ok := finder.Find(t.Context(), a); !ok {
			t.Error("nothing is searched after that")
		}
	})
}

// TestLargeTrees: a search reads no more than maxBytes.
func TestLargeTrees(t *testing.T) {
	f := newFakeFarm(t)
	s := &source{storage: f, cache: newCache()}
	large, err := digest.Parse(fn, command.Hash(), maxBytes+1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context(), []digest.Digest{large}); err == nil || errors.Is(err, digest.ErrNotFound) || len(f.reads) > 0 {
		t.Errorf("%v after %d reads", err, len(f.reads))
	}
}
