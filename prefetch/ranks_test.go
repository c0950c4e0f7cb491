package prefetch

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
	"github.com/forerunner-build/forerunner/records/record"
)

// ranksOf returns the ranks that p has for paths.
func ranksOf(p *Profile, paths ...string) (ranks []rank) {
	for _, path := range paths {
		when, _ := p.foresees(HashPath(path))
		ranks = append(ranks, when)
	}
	return ranks
}

// readInOrder are 24 paths: 3 of the first rank, and 7 of each other.
func readInOrder() (paths []string, ranks []rank) {
	paths = numbered("in/%02d", 22)
	paths = append([]string{"", "in"}, paths...)
	for i := range paths {
		ranks = append(ranks, rankOf(i, len(paths)))
	}
	return paths, ranks
}

// What a run reads first is known of the next one, from the store and by both kinds of records.
func TestRanksAreLearnt(t *testing.T) {
	var s fakeStore
	paths, want := readInOrder()
	if want[2] != 0 || want[3] != 1 || want[9] != 1 || want[10] != 2 || want[16] != 2 || want[17] != lastRank {
		t.Errorf("ranks %v", want)
	}
	p := NewProfiles(&s, ProfilesOptions{})
	learn(p, compileOf("a"), paths...)
	fresh := NewProfiles(&s, ProfilesOptions{})
	for a, origin := range map[string]Origin{"a": Exact, "b": Coarse} {
		found, o := fresh.Find(t.Context(), compileOf(a))
		if got := ranksOf(found, paths...); o != origin || !slices.Equal(got, want) {
			t.Errorf("%s: ranks %v, want %v", o, got, want)
		}
	}
	// Two bits for each.
	var m profiles.Record
	if err := proto.Unmarshal(s.values[record.Key{Bucket: "profile", Digest: compileOf("a").Digest}], &m); err != nil {
		t.Fatal(err)
	}
	if n := len(m.GetHistory().GetRanks()); n != len(paths)/4 {
		t.Errorf("%d bytes of ranks for %d paths", n, len(paths))
	}
}

// Runs that read the same in another order move the ranks, one run that differs a little does not.
func TestRanksFollowTheRuns(t *testing.T) {
	var s fakeStore
	paths, want := readInOrder()
	a := actionOf("a")
	run := func(paths []string) int {
		learn(NewProfiles(&s, ProfilesOptions{}), a, paths...)
		return s.written()
	}
	run(paths)
	jumbled := slices.Clone(paths)
	for i := 0; i+1 < len(jumbled); i += 2 {
		jumbled[i], jumbled[i+1] = jumbled[i+1], jumbled[i]
	}
	if n := run(jumbled); n != 0 {
		t.Errorf("%d writes of a run that read nearly in the same order", n)
	}
	backwards := slices.Clone(paths)
	slices.Reverse(backwards)
	writes := 0
	for range 6 {
		writes += run(backwards)
	}
	if writes < 1 || writes > 3 {
		t.Errorf("%d writes of runs that read in another order", writes)
	}
	found, _ := NewProfiles(&s, ProfilesOptions{}).Find(t.Context(), a)
	off := 0
	for i, r := range ranksOf(found, backwards...) {
		off += max(int(r)-int(want[i]), int(want[i])-int(r))
	}
	if 2*off > len(want) {
		t.Errorf("ranks %v, want about %v", ranksOf(found, backwards...), want)
	}
}

// A program that reads in another order each time does not have its record written each time.
func TestUnrulyOrderIsSeldomWritten(t *testing.T) {
	var s fakeStore
	paths, _ := readInOrder()
	r := rand.New(rand.NewPCG(1, 2))
	p, writes := NewProfiles(&s, ProfilesOptions{}), 0
	for range 64 {
		r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		learn(p, actionOf("a"), paths...)
		writes += s.written()
	}
	if writes < 3 || writes > 12 {
		t.Errorf("%d writes of 64 runs that read in any order", writes)
	}
	p.Flush(t.Context())
	learnt, _ := p.Find(t.Context(), actionOf("a"))
	found, _ := NewProfiles(&s, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
	if !slices.Equal(ranksOf(found, paths...), ranksOf(learnt, paths...)) {
		t.Error("what was learnt last is not written in the end")
	}
}

// The record of actions that are alike has its ranks put right, too, by runs of actions that it
// knows.
func TestCoarseRanksFollowTheRuns(t *testing.T) {
	var s fakeStore
	paths, want := readInOrder()
	backwards := slices.Clone(paths)
	slices.Reverse(backwards)
	p := NewProfiles(&s, ProfilesOptions{})
	actions := []string{"a", "b", "c", "d"}
	for _, a := range actions {
		learn(p, compileOf(a), paths...)
	}
	for range 4 {
		for _, a := range actions {
			learn(p, compileOf(a), backwards...)
		}
	}
	found, origin := p.Find(t.Context(), compileOf("new"))
	off := 0
	for i, r := range ranksOf(found, backwards...) {
		off += max(int(r)-int(want[i]), int(want[i])-int(r))
	}
	if origin != Coarse || 2*off > len(want) {
		t.Errorf("%s: ranks %v, want about %v", origin, ranksOf(found, backwards...), want)
	}
}

// A history that is trimmed or merged keeps the rank of each path.
func TestRanksStayWithTheirPaths(t *testing.T) {
	s := shape{runs: 4, paths: 4, distinct: true}
	var h *history
	for id, order := range [][]PathHash{{9, 1, 5, 7}, {9, 1, 6, 7}, {2, 9, 1, 7}} {
		h, _ = h.with(uint64(id+1), readingOf(order), s)
	}
	// 9 was first, first and second; 1 was second, second and third; 7 was always last.
	if !slices.Equal(h.paths, []PathHash{1, 6, 7, 9}) || !slices.Equal(h.ranks, []rank{2, 2, 3, 1}) {
		t.Errorf("paths %v, ranks %v", h.paths, h.ranks)
	}
}

// Records of programs that note no ranks, and such as only an attacker writes.
func TestForeignRanks(t *testing.T) {
	a, paths := actionOf("a"), []string{"", "a", "b"}
	var s fakeStore
	learn(NewProfiles(&s, ProfilesOptions{}), a, paths...)
	key := record.Key{Bucket: "profile", Digest: a.Digest}
	good := s.values[key]
	var m profiles.Record
	if err := proto.Unmarshal(good, &m); err != nil {
		t.Fatal(err)
	}
	own := m.GetHistory().GetRanks()
	for name, ranks := range map[string][]byte{
		"none": nil, "too few": {}, "too many": {0, 0}, "very many": make([]byte, 1<<20),
	} {
		if err := proto.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		m.History.Ranks = ranks
		s.values[key], _ = proto.Marshal(&m)
		s.written()
		p := NewProfiles(&s, ProfilesOptions{})
		found, origin := p.Find(t.Context(), a)
		if origin != Exact || !found.Contains(HashPath("b")) || found.history == nil {
			t.Fatalf("%s: the record is %s", name, origin)
		}
		if got := ranksOf(found, paths...); !slices.Equal(got, []rank{lastRank, lastRank, lastRank}) {
			t.Errorf("%s: ranks %v", name, got)
		}
		// The next run tells them, if it reads the same as those before it.
		for want := 1; want >= 0; want-- {
			if learn(p, a, paths...); s.written() != want {
				t.Errorf("%s: not written once", name)
			}
		}
		if err := proto.Unmarshal(s.values[key], &m); err != nil || !bytes.Equal(m.GetHistory().GetRanks(), own) {
			t.Errorf("%s: ranks %b are written, want %b", name, m.GetHistory().GetRanks(), own)
		}
	}
}

// The Race asks in the order of the runs before it; of what is read at about the same time, for
// small files first, and in the order of the tree.
func TestRaceAsksInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		ranked bool
		want   string
	}{
		"ranked": {true, "a/config z/first, m/25-m/35, z/tool, m/13-m/24, m/02-m/12, m/01"},
		"plain":  {false, "a/config m/02-m/35 z/first, m/01, z/tool"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, read := []string{"z/tool:9000000", "z/first", "a/config"}, []string{"z/tool", "z/first", "a/config"}
				for i := range 35 {
					path := fmt.Sprintf("m/%02d", 35-i)
					all, read = append(all, path), append(read, path)
				}
				all[len(all)-1] += ":5000000"
				s := newStorage()
				root := s.put(t, all...)
				for d := range s.dirs {
					s.local[d] = true
				}
				at := map[digest.Digest]string{}
				for _, path := range read {
					at[s.at(t, root, path)] = path
				}
				p := profileAfter(exactRules(ProfileOptions{}.withDefaults()), orderOf(read...))
				if !test.ranked {
					p = rankless(p)
				}
				race(t, Spec{Root: root, Source: s, Profile: p, Limits: wideLimits(LimitsOptions{Calls: 1})})
				var calls []string
				for _, call := range s.calls {
					var names []string
					for _, d := range call {
						names = append(names, at[d])
					}
					calls = append(calls, abridged(names))
				}
				if got := strings.Join(calls, ", "); got != test.want {
					t.Errorf("asks for %s\nwant     %s", got, test.want)
				}
			})
		})
	}
}

// What the action opens says how far it is: what comes next goes first, and last what it should
// have read already.
func TestQueueFollowsTheAction(t *testing.T) {
	q := newQueue(Exact, nil, wide())
	var files []file
	for i := range lastRank + 1 {
		files = append(files, file{digest: fileDigest(fmt.Sprint(i), 10), hash: PathHash(i), class: class{when: i}})
	}
	var p progress
	for range progressWindow {
		q.read(1000, p.opened(2))
	}
	q.read(1001, p.opened(0)) // one late one
	q.foresee(files)
	var got []PathHash
	for batch, _ := q.take(); len(batch) > 0; batch, _ = q.take() {
		got = append(got, batch[0].hash)
	}
	if !slices.Equal(got, []PathHash{2, 3, 0, 1}) {
		t.Errorf("asks in the order %d", got)
	}
	for range progressWindow {
		q.read(1000, p.opened(3))
	}
	if q.now != 3 {
		t.Errorf("the action is at %d", q.now)
	}
}

// abridged names the first and the last of what is in m.
func abridged(names []string) string {
	isM := func(name string) bool { return strings.HasPrefix(name, "m/") }
	first := slices.IndexFunc(names, isM)
	if first >= 0 {
		last := first
		for last+1 < len(names) && isM(names[last+1]) && names[last+1] > names[last] {
			last++
		}
		if last > first {
			names = slices.Replace(slices.Clone(names), first, last+1, names[first]+"-"+names[last])
		}
	}
	return strings.Join(names, " ")
}

// withRanks returns p with other ranks.
func withRanks(p *Profile, of func(rank) rank) *Profile {
	other, h := *p, *p.history
	h.ranks = nil
	for _, r := range p.history.ranks {
		h.ranks = append(h.ranks, of(r))
	}
	other.history = &h
	return &other
}

// However wrong ranks are, the same files come, and an action waits at most 1.2 times as long as
// without a profile.
func TestWrongRanks(t *testing.T) {
	for seed := range scenes(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		run := randomRun(random)
		right := profileAfter(exactRules(ProfileOptions{}.withDefaults()), run.order())
		trip := time.Duration(1+random.IntN(50)) * time.Millisecond
		in, away := run.stage(t), distance{trip, 1e6 * float64(10+random.IntN(200))}
		none := run.replay(t, in, away, nil, None)
		want := in.prefetched(t, rankless(right))
		for name, of := range map[string]func(rank) rank{
			"right": func(r rank) rank { return r }, "backwards": func(r rank) rank { return lastRank - r },
			"any": func(rank) rank { return rank(random.IntN(4)) }, "all first": func(rank) rank { return 0 },
		} {
			for _, o := range []Origin{Exact, Coarse} {
				p := withRanks(right, of)
				if got := run.replay(t, in, away, p, o); got > none*12/10 {
					t.Errorf("seed %d: waits %s with %s ranks (%s), %s without a profile", seed, got, name, o, none)
				}
				if got := in.prefetched(t, p); !maps.Equal(got, want) {
					t.Errorf("seed %d: with %s ranks %d files and directories come, without %d", seed, name, len(got), len(want))
				}
			}
		}
	}
}

// randomRun reads some files of a random tree.
func randomRun(random *rand.Rand) (run recorded) {
	all, _, _, _ := randomMisfit(random)
	random.Shuffle(len(all)*random.IntN(2), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, path := range all {
		path, _, _ = strings.Cut(path, ":")
		size := int64(100 + random.IntN(9_000))
		if i == 50 || i == 70 {
			size = int64(random.IntN(3 << 20))
		}
		run = append(run, opened{time.Duration(random.IntN(2000)) * time.Microsecond, size, path})
	}
	return run
}

// prefetched returns what is prefetched if the action waits for all of it before it reads the first
// file.
func (in *stage) prefetched(t *testing.T, p *Profile) map[digest.Digest]bool {
	t.Helper()
	var local map[digest.Digest]bool
	synctest.Test(t, func(t *testing.T) {
		s := in.near()
		race(t, Spec{Root: in.root, Source: s, Profile: p, Limits: wideLimits(LimitsOptions{})})
		local = s.local
	})
	return local
}
