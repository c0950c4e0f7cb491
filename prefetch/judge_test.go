package prefetch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/score"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// A judged tree is one that runs of actions are compared with.
type judged struct {
	*storage
	root digest.Digest
}

func newJudged(t *testing.T, paths ...string) *judged {
	t.Helper()
	s := newStorage()
	return &judged{s, s.put(t, paths...)}
}

// A verdict is that of a run, with what it read.
type verdict struct {
	Verdict
	read []PathHash
}

// judge compares a run that read paths with what p knows of a.
func (j *judged) judge(t *testing.T, p *Profiles, a Action, paths ...string) verdict {
	t.Helper()
	var r Recorder
	for _, path := range paths {
		r.Read(path, tree.File)
	}
	return verdict{p.Judge(t.Context(), a, Run{Local: j.everywhere, Root: j.root, Read: r.Has}), r.Hashes()}
}

// run is judge, and has p learn the run if it succeeded.
func (j *judged) run(t *testing.T, p *Profiles, a Action, succeeded bool, paths ...string) {
	t.Helper()
	if v := j.judge(t, p, a, paths...); succeeded {
		v.Learn(t.Context(), v.read, Inputs{})
	}
}

// learnt has p learn a run of a that read paths.
func learnt(p *Profiles, a Action, paths ...string) {
	p.Learn(context.Background(), a, orderOf(paths...), Inputs{})
}

// uses reports the profile that a run of a would get.
func uses(t *testing.T, p *Profiles, a Action, want Origin, when string) {
	t.Helper()
	if _, got := p.Find(t.Context(), a); got != want {
		t.Errorf("%s: the profile is %s, want %s", when, got, want)
	}
}

// TestUntrusted: a record that a run read nothing of is not used until runs read what it has, in
// other programs, too, that share the store.
func TestUntrusted(t *testing.T) {
	right, wrong := numbered("a/f%02d", 10), numbered("b/f%02d", 10)
	j := newJudged(t, append(right, wrong...)...)
	store, a := &fakeStore{}, actionOf("a")
	p := NewProfiles(store, ProfilesOptions{})
	learnt(p, a, right...)
	store.written()
	for range 3 {
		j.run(t, p, a, false, right...)
		uses(t, p, a, Exact, "after a run as foreseen")
	}
	j.run(t, p, a, false) // not watched
	uses(t, p, a, Exact, "after a run without reads")
	if n := store.written(); n > 0 {
		t.Errorf("a record that stays right was written %d times", n)
	}
	j.run(t, p, a, false, wrong...)
	uses(t, p, a, None, "after another run")
	other := NewProfiles(store, ProfilesOptions{})
	uses(t, other, a, None, "in another program")
	if n := store.written(); n != 1 {
		t.Errorf("written %d times", n)
	}
	j.run(t, other, a, false, right...)
	uses(t, other, a, Exact, "after a run as foreseen, in the other program")
}

// TestReplaced: a record that a run read nothing of is replaced by that run. An action that reads
// something else each time has no profile in the end.
func TestReplaced(t *testing.T) {
	var all []string
	for i := range 12 {
		all = append(all, numbered(fmt.Sprintf("d%02d/f%%02d", i), 10)...)
	}
	j := newJudged(t, all...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, all[:10]...)
	j.run(t, p, a, true, all[10:20]...)
	expect(t, p, a, Exact, all, all[10:20]...)
	for i := 2; i < 12; i++ {
		j.run(t, p, a, true, all[10*i:10*i+10]...)
		uses(t, p, a, None, "of an action that never reads the same")
	}
	for range 3 {
		j.run(t, p, a, true, all[:10]...)
	}
	expect(t, p, a, Exact, all, all[:10]...)
}

// TestUntrustedElsewhere: what one worker finds wrong, others with the same store stop using.
func TestUntrustedElsewhere(t *testing.T) {
	right, wrong := numbered("a/f%02d", 10), numbered("b/f%02d", 10)
	j := newJudged(t, append(right, wrong...)...)
	store, a := &fakeStore{}, actionOf("a")
	p, other := NewProfiles(store, ProfilesOptions{MaxAge: 1}), NewProfiles(store, ProfilesOptions{MaxAge: 1})
	learnt(p, a, wrong...)
	uses(t, other, a, Exact, "before a run")
	j.run(t, p, a, false, right...)
	uses(t, other, a, None, "after a run of another worker")
}

// TestMisledOnce: a run joins a record that it read most of, although another one before it did
// not.
func TestMisledOnce(t *testing.T) {
	all := numbered("a/f%02d", 12)
	j := newJudged(t, append(numbered("b/f%02d", 10), all...)...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, all[:10]...)
	j.run(t, p, a, false, "b/f00")
	for range 2 {
		j.run(t, p, a, true, all[2:]...)
	}
	expect(t, p, a, Exact, all, all...)
}

// TestMisledTogether: of two runs at the same time that both read something else than the record
// says, the second one does not replace what the first one read.
func TestMisledTogether(t *testing.T) {
	all := append(append(numbered("a/f%02d", 10), numbered("b/f%02d", 10)...), numbered("c/f%02d", 10)...)
	j := newJudged(t, all...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, all[:10]...)
	first, second := j.judge(t, p, a, all[10:20]...), j.judge(t, p, a, all[20:]...)
	first.Learn(t.Context(), first.read, Inputs{})
	second.Learn(t.Context(), second.read, Inputs{})
	for range 3 {
		j.run(t, p, a, false, all[10:]...)
	}
	expect(t, p, a, Exact, all, all[10:]...)
}

// TestMisledBeside: a run that read what the record says joins it, although another run at the same
// time read something else.
func TestMisledBeside(t *testing.T) {
	all := numbered("a/f%02d", 12)
	j := newJudged(t, append(numbered("b/f%02d", 10), all...)...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, all[:10]...)
	j.run(t, p, a, true, all[:10]...)
	right := j.judge(t, p, a, all[2:]...)
	j.judge(t, p, a, "b/f00")
	right.Learn(t.Context(), right.read, Inputs{})
	for range 3 {
		j.run(t, p, a, false, all[2:]...)
	}
	expect(t, p, a, Exact, all, all...)
}

// TestFailsOften: an action of which every second run fails early has its profile for the others.
func TestFailsOften(t *testing.T) {
	all := numbered("a/f%02d", 20)
	j := newJudged(t, all...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	var early Recorder
	early.Read(all[0], tree.File)
	for range 2 {
		j.run(t, p, a, true, all...)
	}
	for range 20 {
		p.Judge(t.Context(), a, Run{Local: j.everywhere, Root: j.root, Read: early.Has, Failed: true})
		uses(t, p, a, Exact, "after one failure")
		j.run(t, p, a, true, all...)
	}
	for range 4 {
		p.Judge(t.Context(), a, Run{Local: j.everywhere, Root: j.root, Read: early.Has, Failed: true})
	}
	uses(t, p, a, None, "after failures only")
}

// TestComparedEntries: a run with one large directory at many paths is not compared for ever.
func TestComparedEntries(t *testing.T) {
	s := newStorage()
	large, top := &repb.Directory{}, &repb.Directory{}
	for i := range 1 << 14 {
		large.Files = append(large.Files, &repb.FileNode{Name: fmt.Sprintf("f%05d", i), Digest: fileDigest("x", 1).Proto()})
	}
	below := s.putDirectory(t, large).Proto()
	var r Recorder
	for i := range 1 << 10 {
		name := fmt.Sprintf("d%05d", i)
		top.Directories = append(top.Directories, &repb.DirectoryNode{Name: name, Digest: below})
		r.Read(name+"/f00000", tree.File)
	}
	root := s.putDirectory(t, top)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	p.Learn(t.Context(), a, r.Hashes(), Inputs{})
	entries := 0
	p.Judge(t.Context(), a, Run{Root: root, Read: r.Has, Local: func(d digest.Digest) (*tree.Directory, bool) {
		dir, ok := s.everywhere(d)
		entries += dir.Len()
		return dir, ok
	}})
	if entries == 0 || entries > maxCompared+1<<14 {
		t.Errorf("%d entries were read, want at most %d", entries, maxCompared)
	}
	uses(t, p, a, Exact, "after a run as foreseen")
}

// TestCosts: each file costs something beside its bytes, and only those count that would be
// fetched.
func TestCosts(t *testing.T) {
	many := numbered("a/f%02d", 30)
	j := newJudged(t, append(many, "a/more:40000", "b/rare:100000")...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, append(many, "a/more")...)
	j.run(t, p, a, false, "a/more")
	uses(t, p, a, None, "after a run that read most of the bytes and few of the files")
	for i := range 10 {
		paths := many[:1:1]
		if i < 2 {
			paths = append(paths, "b/rare")
		}
		learnt(p, compileOf(fmt.Sprint(i)), paths...)
	}
	j.run(t, p, compileOf("another"), false, many[0])
	uses(t, p, compileOf("another"), Coarse, "after a run without a file that is rare and not small")
}

// TestAdditions: what some runs read, and others do not, stays in a record.
func TestAdditions(t *testing.T) {
	all := numbered("a/f%02d", 20)
	j := newJudged(t, all...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), actionOf("a")
	learnt(p, a, all[:15]...)
	j.run(t, p, a, true, all[2:]...)
	expect(t, p, a, Exact, all, all...)
}

// TestMistakesOfFilters: what a filter has by mistake is not predicted if there is a history.
func TestMistakesOfFilters(t *testing.T) {
	all := numbered("a/f%04d", 5000)
	j := newJudged(t, all...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{Filter: ProfileOptions{BitsPerPath: 2}}), actionOf("a")
	learnt(p, a, all[:5]...)
	for range 3 {
		j.run(t, p, a, true, all[:5]...)
		uses(t, p, a, Exact, "of five files among many")
	}
	synctest.Test(t, func(t *testing.T) {
		found, _ := p.Find(t.Context(), a)
		race := Start(t.Context(), Spec{Root: j.root, Source: j.storage, Profile: found, Origin: Exact})
		time.Sleep(time.Hour)
		if stats := race.Stop(); stats.Files.Files != 5 {
			t.Errorf("%d files were fetched", stats.Files.Files)
		}
	})
}

// TestSimilarInstead: a good record of similar actions is used instead of a bad one of the action.
func TestSimilarInstead(t *testing.T) {
	right, wrong := numbered("a/f%02d", 10), numbered("b/f%02d", 10)
	j := newJudged(t, append(right, wrong...)...)
	p, a := NewProfiles(&fakeStore{}, ProfilesOptions{}), compileOf("a")
	learnt(p, a, wrong...)
	for i := range 4 {
		learnt(p, compileOf(fmt.Sprint(i)), right...)
	}
	uses(t, p, a, Exact, "before a run")
	j.run(t, p, a, false, right...)
	expect(t, p, a, Coarse, append(right, wrong...), right...)
	for range 6 {
		j.run(t, p, a, false, "other")
	}
	uses(t, p, a, None, "when none is right")
	for range 6 {
		j.run(t, p, a, false, right...)
	}
	expect(t, p, a, Coarse, append(right, wrong...), right...)
}

// TestOverwritten: a program that knows no scores writes other wrong records, and they are not
// used.
func TestOverwritten(t *testing.T) {
	right, wrong := numbered("a/f%02d", 10), numbered("b/f%02d", 10)
	j := newJudged(t, append(right, wrong...)...)
	store, a := &fakeStore{}, actionOf("a")
	p := NewProfiles(store, ProfilesOptions{MaxAge: 1})
	k, _ := a.exactKey()
	for i, want := range []Origin{Exact, None, None} {
		value, err := proto.Marshal(profileOf(wrong[i:]...).Message())
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), k, value); err != nil {
			t.Fatal(err)
		}
		uses(t, p, a, want, fmt.Sprintf("with wrong record %d", i))
		j.run(t, p, a, false, right...)
		uses(t, p, a, None, fmt.Sprintf("after a run with wrong record %d", i))
	}
}

// TestScoreInRecord: a record has its score beside Buildbarn's message, whose bytes do not change.
func TestScoreInRecord(t *testing.T) {
	k := &knowledge{}
	k, _ = k.learn(1, readingOf(orderOf("a/b")), exactRules(ProfileOptions{}.withDefaults()))
	without, err := k.marshal()
	if err != nil {
		t.Fatal(err)
	}
	with, err := k.withScore(score.Score{}.After(0.25, score.Rules{Latest: 1})).marshal()
	if err != nil {
		t.Fatal(err)
	}
	var m profiles.Record
	if err := proto.Unmarshal(with, &m); err != nil || m.GetRightPerMille() != 250 {
		t.Errorf("%v, %v", &m, err)
	}
	if !strings.HasPrefix(string(with), string(without)) {
		t.Error("a score changes the rest of a record")
	}
}

// unread returns how many bytes of files came that the run did not read, and how many it read.
func (run recorded) unread(t *testing.T, in *stage, s *distant) (unread, read int64) {
	t.Helper()
	want := map[digest.Digest]bool{}
	for _, open := range run {
		if d := in.at(t, open.path); !want[d] {
			want[d] = true
			read += d.SizeBytes()
		}
	}
	return s.fileBytes() - read, read
}

// rightOf returns which share of what a record has below the root of a scene the action reads, by
// the definition in the package's documentation.
func (s scene) rightOf() float64 {
	said, reads := map[PathHash]bool{}, map[string]bool{}
	for _, h := range s.said {
		said[h] = true
	}
	for _, open := range s.run {
		reads[open.path] = true
	}
	var right, all float64
	for _, file := range s.all {
		path, size, _ := strings.Cut(file, ":")
		var bytes float64
		if _, err := fmt.Sscan(size, &bytes); err != nil {
			panic(err)
		}
		if said[HashPath(path)] {
			all += bytes + 4096
			if reads[path] {
				right += bytes + 4096
			}
		}
	}
	return right / max(all, 1)
}

// repeat runs the action of a scene with a record three times, each time with nothing local.
func (s scene) repeat(t *testing.T, about string, p *Profiles, a Action, succeeds bool, mbitPerSecond float64, trip time.Duration) {
	t.Helper()
	away := mbit(mbitPerSecond, trip)
	slack := max(trip, time.Duration(firstWindow/away.bytesPerSecond*1e9))
	none, far := s.run.play(t, s.in, away, nil, None)
	most, read := s.run.unread(t, s.in, far)
	if succeeds {
		own := s.in.withDirectories(profileAfter(p.exact, s.run.order()), s.run.order())
		_, far = s.run.play(t, s.in, away, own, Exact)
		most, _ = s.run.unread(t, s.in, far)
	}
	most += read * 15 / 100
	wrong := s.rightOf() < 0.45
	for i := range 3 {
		record, origin := p.Find(t.Context(), a)
		waited, far := s.run.play(t, s.in, away, record, origin)
		if waited > none*12/10+slack {
			t.Errorf("%s: run %d waits %s with a record (%s), %s with none", about, i+1, waited, origin, none)
		}
		if unread, _ := s.run.unread(t, s.in, far); i > 0 && wrong && unread > most {
			t.Errorf("%s: run %d fetches %d bytes that it does not read (%s), want at most %d; it reads %d",
				about, i+1, unread, origin, most, read)
		}
		var r Recorder
		for _, open := range s.run {
			r.Read(open.path, tree.File)
		}
		v := p.Judge(t.Context(), a, Run{Local: far.LocalDirectory, Root: s.in.root, Read: r.Has})
		if succeeds {
			v.Learn(t.Context(), r.Hashes(), Inputs{Directories: Directories(far.LocalDirectory, s.in.root, r.Has)})
		}
	}
}

// repeatWrong is for one seed: a record as this program writes it, or one that is only a filter,
// and an action that succeeds or fails.
func repeatWrong(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	s := randomScene(t, r)
	if len(s.run) == 0 {
		return
	}
	succeeds, plain, link, trip := r.IntN(2) == 0, r.IntN(2) == 0, []float64{30, 100, 1000}[r.IntN(3)], []time.Duration{2, 10, 50}[r.IntN(3)]
	a, store := actionOf("a"), &fakeStore{plain: plain}
	NewProfiles(store, ProfilesOptions{}).Learn(t.Context(), a, s.said, Inputs{})
	about := fmt.Sprintf("seed %d, %g Mbit/s, %s, right %.2f, succeeds %t, plain %t", seed, link, trip*time.Millisecond, s.rightOf(), succeeds, plain)
	s.repeat(t, about, NewProfiles(store, ProfilesOptions{}), a, succeeds, link, trip*time.Millisecond)
}

// FuzzRepeatedly is TestRepeatedly with more seeds.
func FuzzRepeatedly(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { repeatWrong(t, seed) })
}

// TestRepeatedly: with a wrong record that was never compared, and with what is known after one run
// and two, an action waits at most 1.2 times as long as with none, and a round trip or as long as
// the first window takes. If the record is wrong, the second and third run fetch little that they
// do not read: at most 15 % of what they read more than with a right record if the first one was
// learnt, and otherwise than without a record. It is so in nearly all scenes, but not in all.
func TestRepeatedly(t *testing.T) {
	for seed := range scenes(20) {
		repeatWrong(t, seed)
	}
	// These have large files that are not read, larger than all that is read as foreseen.
	for _, seed := range []uint64{532, 1108, 1225} {
		repeatWrong(t, seed)
	}
}
