package comparison

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/stored"
)

// A farm has runs, the latest first, and a storage that counts reads.
type farm struct {
	t     *testing.T
	blobs map[digest.Digest][]byte
	runs  []*historypb.Record
	read  []string // paths that the command's runs read; nil if unknown
	reads chan digest.Digest
}

func newFarm(t *testing.T) *farm {
	return &farm{t: t, blobs: map[digest.Digest][]byte{}, reads: make(chan digest.Digest, 10_000)}
}

func (f *farm) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	f.reads <- d
	if b, ok := f.blobs[d]; ok {
		return b, nil
	}
	return nil, digest.ErrNotFound
}

func (f *farm) put(m proto.Message) *repb.Digest {
	d, raw, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		f.t.Fatal(err)
	}
	f.blobs[d] = raw
	return d.Proto()
}

func (f *farm) explain(r *historypb.Record) *Explanation {
	s := Source{
		Records: func(_ context.Context, req *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error) {
			resp := &admin.ListRecordsResponse{}
			for _, r := range f.runs {
				is := req.GetPattern().GetAttributes()
				if a, ok := is["action"]; ok && a != r.GetAction() {
					continue
				}
				if t, ok := is["target"]; ok && t != r.GetTarget() {
					continue
				}
				ended := r.GetEnded().AsTime()
				if req.GetBefore() != nil && !ended.Before(req.GetBefore().AsTime()) || req.GetSince() != nil && ended.Before(req.GetSince().AsTime()) {
					continue
				}
				resp.Records = append(resp.Records, r)
			}
			return resp, nil
		},
		Blobs: func(string, digest.Function) stored.Blobs { return f },
	}
	if f.read != nil {
		var hashes []prefetch.PathHash
		for _, p := range f.read {
			hashes = append(hashes, prefetch.HashPath(p))
		}
		value, err := proto.Marshal(prefetch.NewProfile(hashes, prefetch.ProfileOptions{}).Message())
		if err != nil {
			f.t.Fatal(err)
		}
		s.Profile = func(context.Context, string, digest.Digest) ([]byte, error) { return value, nil }
	}
	return s.Explain(f.t.Context(), r)
}

// run adds a run of an action, an hour after the last one.
func (f *farm) run(a *repb.Action, c *repb.Command) *historypb.Record {
	a.CommandDigest = f.put(c)
	if a.InputRootDigest == nil {
		a.InputRootDigest = f.put(&repb.Directory{})
	}
	ended := time.Date(2030, 1, 2, 3+len(f.runs), 4, 5, 0, time.UTC)
	r := &historypb.Record{
		Operation: fmt.Sprintf("operations/%d", len(f.runs)+1), Action: digest.Text(f.put(a)), DigestFunction: "sha256", Target: "//a:b",
		Mnemonic: "CppCompile", Command: digest.Text(a.GetCommandDigest()), Arguments: c.GetArguments(), Outcome: historypb.Outcome_SUCCEEDED,
		Queued: timestamppb.New(ended.Add(-time.Minute)), Ended: timestamppb.New(ended),
	}
	f.runs = append([]*historypb.Record{r}, f.runs...)
	return r
}

func file(name, content string) *repb.FileNode {
	return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(content)).Proto()}
}

func cc(args ...string) *repb.Command {
	return &repb.Command{Arguments: append([]string{"cc"}, args...)}
}

func expect(t *testing.T, e *Explanation, want ...string) {
	t.Helper()
	all := strings.Join(append(slices.Clone(e.Reasons), e.Problem), "\n")
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("%q is not among the reasons:\n%s", w, all)
		}
	}
}

func TestEveryField(t *testing.T) {
	f := newFarm(t)
	variables := func(path string) []*repb.Command_EnvironmentVariable {
		return []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: path}, {Name: "LANG", Value: "C"}}
	}
	platform := func(os string) *repb.Platform {
		return &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OSFamily", Value: os}}}
	}
	f.run(&repb.Action{Timeout: durationpb.New(time.Minute), Platform: platform("linux"), Salt: []byte{1}},
		&repb.Command{Arguments: []string{"cc", "-O1", "-g"}, EnvironmentVariables: variables("/bin"), OutputPaths: []string{"a.o"}})
	now := f.run(&repb.Action{Timeout: durationpb.New(time.Hour), Platform: platform("plan9"), Salt: []byte{2}, DoNotCache: true},
		&repb.Command{Arguments: []string{"cc", "-O2", "-g"}, EnvironmentVariables: variables("/usr/bin"), OutputPaths: []string{"a.o"}, WorkingDirectory: "w"})
	e := f.explain(now)
	expect(t, e, "The client forbids to cache the result (do_not_cache)", "Argument 1 differs: -O1 there, -O2 here.",
		"Variable PATH differs: /bin there, /usr/bin here.", "Platform property OSFamily differs: linux there, plan9 here.",
		"Timeout differs: 1m0s there, 1h0m0s here.", "Salt differs: 01 there, 02 here.", "Working directory is only in this run: w.", "Do_not_cache is only in this run: true.")
	if all := fmt.Sprint(e); strings.Contains(all, "LANG") || strings.Contains(all, "a.o") || e.Other.GetOperation() != "operations/1" {
		t.Errorf("equal values are listed: %s", all)
	}
}

// TestInputs reads only folders that differ, and says which inputs were read.
func TestInputs(t *testing.T) {
	f := newFarm(t)
	same := f.put(&repb.Directory{Files: []*repb.FileNode{file("never.h", "never")}})
	action := func(header, doc string, more ...*repb.DirectoryNode) *repb.Action {
		deep := f.put(&repb.Directory{Files: []*repb.FileNode{file("a.h", header), file("doc.txt", doc), file("same.h", "same")}})
		root := f.put(&repb.Directory{Directories: append([]*repb.DirectoryNode{
			{Name: "include", Digest: deep}, {Name: "other", Digest: same},
		}, more...), Symlinks: []*repb.SymlinkNode{{Name: "link", Target: header}}})
		return &repb.Action{InputRootDigest: root}
	}
	f.run(action("one", "old"), cc())
	now := f.run(action("two", "new", &repb.DirectoryNode{Name: "gen", Digest: same}), cc())
	e := f.explain(now)
	expect(t, e, "Input include/a.h differs.", "Input gen/ is only in this run.", "Input link differs.")
	f.read = []string{"", "include", "include/a.h"}
	e = f.explain(now)
	expect(t, e, "Input include/a.h differs and was read by an earlier run", "Input include/doc.txt differs and was not read.",
		"Input gen/ is only in this run and was not read.", "Input link differs.")
	if n := len(e.Kinds[0].List); n != 4 {
		t.Errorf("%d differences, want 4: %v", n, e.Kinds)
	}
	for len(f.reads) > 0 {
		if d := <-f.reads; d.String() == digest.Text(same) {
			t.Error("an equal folder was read")
		}
	}
	f.read = []string{"", "include"}
	f.runs = nil
	f.run(action("one", "old"), cc())
	e = f.explain(f.run(action("one", "new"), cc()))
	expect(t, e, "Only inputs differ that no known run of this command read")
}

// TestSkipped distinguishes the result of an earlier run from one in the action cache, which may
// have come from an earlier run itself.
func TestSkipped(t *testing.T) {
	reused, err := anypb.New(&actionstats.Reused{Scheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"the command was not run": "The result was not in the action cache, but the run was skipped",
		"":                        "The result was in the action cache: nothing ran.",
	} {
		f := newFarm(t)
		f.read = []string{""}
		action := func(content string) *repb.Action {
			return &repb.Action{InputRootDigest: f.put(&repb.Directory{Files: []*repb.FileNode{file("unread.h", content)}})}
		}
		f.run(action("old"), cc())
		now := f.run(action("new"), cc())
		now.Outcome, now.Message = historypb.Outcome_CACHED, message
		now.Metadata = &repb.ExecutedActionMetadata{AuxiliaryMetadata: []*anypb.Any{reused}}
		e := f.explain(now)
		expect(t, e, want, "Input unread.h differs and was not read.")
		if advised := strings.Contains(fmt.Sprint(e.Reasons), "--reuse=profile"); advised != (message == "") {
			t.Errorf("message %q: --reuse=profile is advised: %t", message, advised)
		}
	}
}

// TestCached has a result that was in the action cache. No sentence may say that it was not used.
func TestCached(t *testing.T) {
	f := newFarm(t)
	before, now := f.run(&repb.Action{}, cc()), f.run(&repb.Action{}, cc())
	now.Outcome = historypb.Outcome_CACHED
	for _, test := range []struct {
		outcome historypb.Outcome
		runs    []*historypb.Record
		want    string
	}{
		{historypb.Outcome_SUCCEEDED, []*historypb.Record{now, before}, "with success, and nothing differs."},
		{historypb.Outcome_FAILED, []*historypb.Record{now, before}, "did not succeed: the result is of another run."},
		{historypb.Outcome_SUCCEEDED, []*historypb.Record{now}, "No other run of //a:b (CppCompile) is known here."},
	} {
		before.Outcome, f.runs = test.outcome, test.runs
		reasons := f.explain(now).Reasons
		if len(reasons) != 2 || reasons[0] != "The result was in the action cache: nothing ran." || !strings.HasSuffix(reasons[1], test.want) {
			t.Errorf("the reasons are %q, want %q", reasons, test.want)
		}
	}
}

// TestNearest has a target with many actions of one mnemonic. The comparison must choose the one
// with the same output.
func TestNearest(t *testing.T) {
	f := newFarm(t)
	out := func(r *historypb.Record, path string) { r.Outputs = []*historypb.Output{{Path: path}} }
	out(f.run(&repb.Action{}, cc("-O1", "-c", "a.cc", "-o", "a.o")), "a.o")
	out(f.run(&repb.Action{}, cc("-O2", "-c", "b.cc", "-o", "b.o")), "b.o")
	now := f.run(&repb.Action{}, cc("-O2", "-c", "a.cc", "-o", "a.o"))
	out(now, "a.o")
	out(f.run(&repb.Action{}, cc("-O2", "-c", "a.cc", "-o", "a.o", "-g")), "a.o")
	e := f.explain(now)
	expect(t, e, "Argument 1 differs: -O1 there, -O2 here.")
	if e.Other.GetOperation() != "operations/1" {
		t.Errorf("it is compared with %s", e.Other.GetOperation())
	}
	first := f.explain(f.runs[3])
	if first.Other.GetOperation() != "operations/3" {
		t.Errorf("the first is compared with %s, not with the nearest after it", first.Other.GetOperation())
	}
}

func TestSameAction(t *testing.T) {
	f := newFarm(t)
	f.run(&repb.Action{}, cc("other"))
	before := f.run(&repb.Action{}, cc())
	now := f.run(&repb.Action{}, cc())
	e := f.explain(now)
	expect(t, e, "The same action ended before, 2030-01-02T04:04:05Z (operations/2), with success, and nothing differs")
	if len(e.Kinds) > 0 || e.Other != before {
		t.Errorf("it differs from itself: %v", e)
	}
	before.Outcome = historypb.Outcome_TIMED_OUT
	expect(t, f.explain(now), "did not succeed: only successful results are cached")
	joined := proto.Clone(now).(*historypb.Record)
	joined.Operation = "operations/joined"
	f.runs = []*historypb.Record{joined, now}
	if e := f.explain(now); e.Other != nil {
		t.Errorf("it is compared with an operation that joined it: %v", e)
	}
}

// TestWhatIsNotKnown says what is missing and what the user can do.
func TestWhatIsNotKnown(t *testing.T) {
	f := newFarm(t)
	before := f.run(&repb.Action{}, cc("-O1"))
	e := f.explain(before)
	expect(t, e, "No other run of //a:b (CppCompile) is known here")
	root := f.put(&repb.Directory{Files: []*repb.FileNode{file("a", "a")}})
	now := f.run(&repb.Action{InputRootDigest: root}, cc("-O2"))
	gone, err := digest.FromProto(digest.SHA256, root)
	if err != nil {
		t.Fatal(err)
	}
	delete(f.blobs, gone)
	e = f.explain(now)
	expect(t, e, "Argument 1 differs", "Some folders of inputs that differ cannot be read")
	clear(f.blobs)
	expect(t, f.explain(now), "The storage no longer has this action, or its command")
	if got := unreadable("this action", status.Error(codes.PermissionDenied, "no right")); got != "You may not read this action: no right" {
		t.Error(got)
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct{ before, now, want string }{
		{"cc -a -b", "cc -a -b", "[]"},
		{"cc -a x", "cc -b x", "[{argument 1 -a -b }]"},
		{"cc -a x", "cc -a -n x", "[{argument  -n }]"},
		{"cc a b c d", "cc d e a", "[{argument b  } {argument c  } {argument  e }]"},
		{"cc a b", "cc b a b", "[{argument  b }]"},
	} {
		if got := fmt.Sprint(ofArguments(strings.Fields(test.before), strings.Fields(test.now))); got != test.want {
			t.Errorf("%q and %q: %s, want %s", test.before, test.now, got, test.want)
		}
	}
}

// TestBounds compares trees with more differences than the limit.
func TestBounds(t *testing.T) {
	f := newFarm(t)
	wide := func(content string) *repb.Directory {
		m := &repb.Directory{}
		for i := range 2000 {
			below := f.put(&repb.Directory{Files: []*repb.FileNode{file("x", fmt.Sprint(content, i))}})
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%04d", i), Digest: below})
		}
		return m
	}
	f.run(&repb.Action{InputRootDigest: f.put(wide("a"))}, cc())
	now := f.run(&repb.Action{InputRootDigest: f.put(wide("b"))}, cc())
	e := f.explain(now)
	if n := len(f.reads); n > maxFolders+4 || e.Problem != "There are more inputs that differ." {
		t.Errorf("%d blobs are read: %q", n, e.Problem)
	}
	many := func(content string) *repb.Action {
		m := &repb.Directory{}
		for i := range 100 {
			m.Files = append(m.Files, file(fmt.Sprintf("f%03d", i), fmt.Sprint(content, i)))
		}
		return &repb.Action{InputRootDigest: f.put(m)}
	}
	f.runs = nil
	f.run(many("a"), cc(strings.Repeat("x", 10_000)))
	e = f.explain(f.run(many("b"), cc(strings.Repeat("y", 10_000))))
	if len(e.Kinds) != 2 || len(e.Kinds[1].List) != maxDifferences || e.Kinds[1].More != 100-maxDifferences || len(e.Kinds[0].List[0].This) > maxCell+10 {
		t.Errorf("differences of %d kinds", len(e.Kinds))
	}
	expect(t, e, "91 more differences follow below.")
}
