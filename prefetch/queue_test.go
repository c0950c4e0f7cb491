package prefetch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// filesOf are small and large files of these sizes, each of the rank of its place.
func filesOf(sizes ...int64) (files []file) {
	for i, size := range sizes {
		c := class{when: rank(i)}
		if size > largeBytes {
			c.way = large
		}
		files = append(files, file{digest: fileDigest(fmt.Sprint(i), size), hash: PathHash(i), class: c})
	}
	return files
}

// wide is the pace of a link that carries as much as ever counts.
func wide() *pace { return &pace{window: mostWindow} }

// wideLimits have that pace.
func wideLimits(o LimitsOptions) *Limits {
	l := NewLimits(o)
	l.pace.window = mostWindow
	return l
}

// taken are the hashes of all that may go now.
func taken(q *queue) (hashes []PathHash) {
	for batch, _ := q.take(); len(batch) > 0; batch, _ = q.take() {
		for _, f := range batch {
			hashes = append(hashes, f.hash)
		}
	}
	return hashes
}

// A file that takes long, or of which the parts come, neither holds back what is read after it nor
// spends what the profile is trusted for.
func TestQueueLargeFilesHoldBackNothing(t *testing.T) {
	files := filesOf(120<<20, 1<<20, 1<<20, 1<<20)
	q := newQueue(Exact, nil, wide())
	q.foresee(files[:1])
	if got := taken(q); !slices.Equal(got, []PathHash{0}) {
		t.Fatalf("asks for %d", got)
	}
	q.begun(files[:1], func() {})
	q.foresee(files[1:])
	if got := taken(q); !slices.Equal(got, []PathHash{1, 2, 3}) {
		t.Errorf("asks for %d beside the large file", got)
	}
	// But large ones are bounded, too.
	large := file{digest: fileDigest("large", 2<<20), hash: 9, class: class{way: large}}
	q.foresee([]file{large})
	if got := taken(q); len(got) > 0 {
		t.Errorf("asks for one more large file, %d", got)
	}
	q.ended(files[:1], false)
	q.read(0, 0) // which shows that the profile is right
	if got := taken(q); !slices.Equal(got, []PathHash{9}) {
		t.Errorf("asks for %d in the end", got)
	}
	parts := span.Set{{From: 0, To: chunkBytes}}
	files = filesOf(9<<20, 100)
	files[1].class.when = 2
	q = newQueue(Exact, ranges{{path: 0, size: 9 << 20, parts: parts}}, wide())
	q.foresee(files)
	if got := taken(q); !slices.Equal(got, []PathHash{0, 0, 1}) {
		t.Errorf("asks for %d", got)
	}
	// One of which nothing comes before all of it does is waited for, once it has its call.
	q = newQueue(Exact, nil, wide())
	q.foresee(files[:1])
	batch, _ := q.take()
	q.begun(batch, func() {})
	q.foresee(files[1:])
	if got := taken(q); len(got) > 0 {
		t.Errorf("asks for %d", got)
	}
	if q.ended(batch, false); !slices.Equal(taken(q), []PathHash{1}) {
		t.Error("waits for what has ended")
	}
}

// Parts go in their turn, out of the one credit, and not while the profile is wrong; those that
// were held come later.
func TestQueueParts(t *testing.T) {
	part := span.Set{{From: 0, To: 1 << 20}, {From: 4 << 20, To: 6 << 20}}
	var known ranges
	files := filesOf(40<<20, 40<<20, 40<<20)
	for _, f := range files {
		known = append(known, ranged{path: f.hash, size: f.digest.SizeBytes(), parts: part})
	}
	q := newQueue(Coarse, known, wide())
	slices.Reverse(files)
	q.foresee(files)
	q.hold(true)
	if got := taken(q); len(got) > 0 || q.ready() {
		t.Fatalf("asks for %d while the profile is wrong", got)
	}
	q.hold(false)
	for i, want := range []span.Set{part, {part[0]}} {
		q.largeCalls = maxLargeCalls // so that only parts go
		batch, parts := q.take()
		if len(batch) != 1 || batch[0].hash != PathHash(i) || !slices.Equal(parts, want) {
			t.Errorf("asks for %v of %v, want %v of %d", parts, batch, want, i)
		}
	}
	if batch, parts := q.take(); len(batch) > 0 || q.credit.left() != 0 {
		t.Errorf("asks for %v of %v for nothing", parts, batch)
	}
}

// The last file of which parts may come has all of them come, if some had to wait, and no other
// has.
func TestQueuePartsOfTheLastFile(t *testing.T) {
	parts := span.Set{{From: 0, To: 1 << 20}, {From: 4 << 20, To: 6 << 20}}
	var known ranges
	files := filesOf(40<<20, 40<<20)
	for _, f := range files {
		known = append(known, ranged{path: f.hash, size: f.digest.SizeBytes(), parts: parts})
	}
	q := newQueue(Coarse, known, wide())
	q.foresee(files)
	q.largeCalls, q.parts.left = maxLargeCalls, 1
	for i, want := range parts {
		q.credit.doubt = coarseCredit - (want.To - want.From)
		batch, got := q.take()
		if len(batch) != 1 || batch[0].hash != 0 || !slices.Equal(got, span.Set{want}) {
			t.Errorf("take %d asks for %v of %v, want %v", i, got, batch, want)
		}
	}
	q.credit.doubt = 0
	if batch, got := q.take(); len(batch) > 0 {
		t.Errorf("asks for %v of %v, too", got, batch)
	}
}

// A large file that waits for room keeps nothing else waiting, neither a call nor what turns up
// meanwhile.
func TestLargeFilesWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		root := s.put(t, "large:40000000", "small", "other:900000")
		limits := wideLimits(LimitsOptions{Calls: 1})
		if err := limits.bytes.Acquire(t.Context(), limits.options.BytesInFlight); err != nil {
			t.Fatal(err)
		}
		r := Start(t.Context(), Spec{
			Root: root, Source: s, Limits: limits,
			Profile: profileAfter(exactRules(ProfileOptions{}.withDefaults()), orderOf("large", "large", "large", "large", "small", "other")),
		})
		for range 10 {
			synctest.Wait()
			time.Sleep(roundTrip)
		}
		for _, path := range []string{"small", "other"} {
			if !s.has(s.at(t, root, path)) {
				t.Errorf("%s waits for the large file", path)
			}
		}
		if s.has(s.at(t, root, "large")) {
			t.Error("the large file found room")
		}
		limits.bytes.Release(limits.options.BytesInFlight)
		for range 10 {
			synctest.Wait()
			time.Sleep(roundTrip)
		}
		if !s.has(s.at(t, root, "large")) {
			t.Error("the large file did not come")
		}
		r.Stop()
		if !limits.calls.TryAcquire(1) || !limits.bytes.TryAcquire(limits.options.BytesInFlight) {
			t.Error("what ended holds a call, or room")
		}
	})
}

// Large files that are not read are no larger together than what was read as foreseen, and than
// what the link carries in some round trips. A smaller one behind another does not wait.
func TestQueueLargeFilesWaitForTrust(t *testing.T) {
	q := newQueue(Coarse, nil, &pace{})
	files := filesOf(40<<20, 3<<20, 300<<10, 2<<20)
	for i := range files {
		files[i].class.when = 0
	}
	q.foresee(files)
	if got := taken(q); !slices.Equal(got, []PathHash{2, 1}) {
		t.Errorf("asks for %d", got)
	}
	q.ended(files[1:2], false)
	q.ended(files[2:3], false)
	q.read(1, 0)
	if got := taken(q); !slices.Equal(got, []PathHash{3}) {
		t.Errorf("asks for %d after the first large file was read", got)
	}
	q.ended(files[3:], false)
	q.read(3, 0)
	for i := range 160 {
		f := filesOf(200 << 10)
		f[0].hash = PathHash(100 + i)
		q.foresee(f)
		q.read(f[0].hash, 0)
	}
	if got := taken(q); !slices.Contains(got, 0) {
		t.Errorf("asks for %d after much of the profile was read", got)
	}
	q = newQueue(Exact, nil, &pace{window: 4 << 20})
	files = filesOf(5<<20, 30<<20)
	q.foresee(files)
	if got := taken(q); !slices.Equal(got, []PathHash{0}) {
		t.Errorf("asks for %d", got)
	}
	if q.ended(files[:1], false); q.ready() {
		t.Error("asks for two files that are too large together")
	}
}

// A large file that the action waits for lets no other large one share the link with it. Once the
// action reads another file, it does.
func TestQueueLargeFilesWaitForOneThatIsRead(t *testing.T) {
	q := newQueue(Exact, nil, &pace{})
	files := filesOf(6<<20, 4<<20, 100)
	for i := range files {
		files[i].class.when = 0
	}
	q.foresee(files)
	q.read(1, 0)
	if got := taken(q); !slices.Equal(got, []PathHash{2, 1}) {
		t.Errorf("asks for %d while the action waits", got)
	}
	if q.ended(files[1:2], false); q.ready() {
		t.Error("asks for another file while the action waits")
	}
	q.read(2, 0)
	if got := taken(q); !slices.Equal(got, []PathHash{0}) {
		t.Errorf("asks for %d afterwards", got)
	}
}

// Files that the action opens before they are found in the tree count as much as others, and once.
func TestQueueFindsFilesThatWereRead(t *testing.T) {
	files := filesOf(50_000, 60_000, 2<<20, 70_000)
	soon, late := newQueue(Exact, nil, &pace{}), newQueue(Exact, nil, &pace{})
	soon.foresee(files)
	for _, f := range files {
		soon.read(f.hash, 0)
		late.read(f.hash, 0)
	}
	for range 2 {
		late.foresee(files)
	}
	if got, want := late.credit.left(), soon.credit.left(); got != want {
		t.Errorf("%d bytes may be asked for, want %d", got, want)
	}
}

// Large files of a profile that proves wrong are given up, and asked for again if it is right after
// all.
func TestQueueGivesUpLargeFiles(t *testing.T) {
	q := newQueue(Exact, nil, wide())
	files := filesOf(40 << 20)
	q.foresee(files)
	batch, _ := q.take()
	ctx, cancel := context.WithCancel(t.Context())
	q.begun(batch, cancel)
	if q.hold(true); ctx.Err() == nil {
		t.Fatal("the call goes on")
	}
	if q.ended(batch, true); q.ready() || q.credit.largeDoubt != 0 {
		t.Errorf("it is asked for again, or %d bytes are in doubt", q.credit.largeDoubt)
	}
	if q.hold(false); !slices.Equal(taken(q), []PathHash{0}) {
		t.Error("it is not asked for again")
	}
}

// The pace changes whenever another race learns of the link, also between two steps of one look.
func TestQueueWhilePaceChanges(t *testing.T) {
	p := &pace{window: 8 << 20}
	look := func(q *queue) class {
		q.lookLocked()
		next, ok := q.nextLocked()
		if !ok {
			t.Fatal("nothing may go")
		}
		p.window = 4 << 20
		return next
	}
	q := newQueue(Exact, nil, p)
	q.foresee(filesOf(60 << 20)) // more than is trusted for with the smaller window
	if batch := q.takeLargeLocked(look(q)); len(batch) != 1 {
		t.Errorf("takes %v", batch)
	}
	p.window = 8 << 20
	q = newQueue(Exact, ranges{{path: 0, size: 9 << 20, parts: span.Set{{From: 0, To: chunkBytes}}}}, p)
	q.foresee(filesOf(9 << 20))
	q.credit.doubt = 12 << 20 // which leaves no credit then
	if parts := q.takePartsLocked(q.takeLocked(look(q))[0]); len(parts) != 1 {
		t.Errorf("takes the parts %v", parts)
	}
	if q.foresee(filesOf(60 << 20)); q.ready() {
		t.Error("goes by what the pace said before")
	}
}

// rouses reports whether f wakes who sends, who sleeps.
func rouses(q *queue, f func()) bool {
	for batch, _ := q.take(); len(batch) > 0; batch, _ = q.take() {
		if batch[0].class.way.isLarge() {
			q.begun(batch, func() {})
		}
		q.ended(batch, false)
	}
	select {
	case <-q.wake:
	default:
	}
	f()
	select {
	case <-q.wake:
		return true
	default:
		return false
	}
}

// Who sends sleeps once nothing may go, and is woken by what lets something go, whatever kept it.
func TestQueueRousesTheSender(t *testing.T) {
	alike := func(sizes ...int64) []file {
		files := filesOf(sizes...)
		for i := range files {
			files[i].class.when = 0
		}
		return files
	}
	p := &pace{}
	q := newQueue(Exact, nil, p)
	q.foresee(alike(1<<20, 512<<10, 512<<10))
	if !rouses(q, func() { p.window = 8 << 20; q.read(0, 0) }) {
		t.Error("sleeps after another race has found that the link carries more")
	}
	q = newQueue(Exact, nil, &pace{})
	q.near(nil, 4<<20)
	q.foresee(alike(512 << 10))
	if rouses(q, func() { q.near(nil, 2<<20) }) {
		t.Error("is woken for nothing")
	}
	if !rouses(q, func() { q.near(nil, 0) }) {
		t.Error("sleeps after what is near was read")
	}
	q = newQueue(Exact, nil, &pace{})
	q.foresee(alike(512<<10, 4300<<10))
	if !rouses(q, func() { q.read(0, 0) }) {
		t.Error("sleeps after a large file has become worth it")
	}
	q.foresee(alike(512 << 10)) // again
	q.hold(true)
	if rouses(q, func() { q.read(0, 0) }) {
		t.Error("is woken while the profile is wrong")
	}
}

// Mentioned files go before neighbours, doubtful ones behind the others, and all before those that
// only a profile has. They take no more of the link than a profile's files do.
func TestQueueOrdersGuesses(t *testing.T) {
	guess := func(h PathHash, c class) []file {
		return []file{{digest: fileDigest(fmt.Sprint(h), 1000), hash: h, class: c}}
	}
	q := newQueue(Exact, nil, wide())
	q.foresee(filesOf(1000))
	q.near(guess(13, class{way: near}), 1000)
	q.guess(guess(12, class{way: mentioned, rare: true}))
	q.guess(guess(11, class{way: mentioned}))
	if got := taken(q); !slices.Equal(got, []PathHash{11, 12, 13, 0}) {
		t.Errorf("asks for %d", got)
	}
	narrow := newQueue(Exact, nil, &pace{window: leastWindow})
	for i := range PathHash(1000) {
		narrow.guess(guess(100+i, class{way: mentioned}))
	}
	if got := int64(len(taken(narrow))) * 1000; got > leastWindow+leastPerCall {
		t.Errorf("%d bytes are under way over a narrow link", got)
	}
}

// readEach has an action read every so-manieth of the files, after all that may be asked for was.
// It returns how many of these were not asked for, and how many bytes were in vain.
func readEach(q *queue, files []file, every int) (late int, unread int64) {
	q.foresee(files)
	asked := map[PathHash]bool{}
	for i := 0; i < len(files); i += every {
		for batch, _ := q.take(); len(batch) > 0; batch, _ = q.take() {
			for _, f := range batch {
				asked[f.hash] = true
			}
			q.ended(batch, false)
		}
		if !asked[files[i].hash] {
			late++
		}
		q.read(files[i].hash, 0)
	}
	return late, q.credit.doubt
}

// A profile that has everything is right about each file that an action reads, and yet most of what
// is asked for is in vain: it earns less.
func TestQueueOfAProfileThatHasEverything(t *testing.T) {
	const size, every = 10_000, 8
	var files []file
	for i := range 20_000 {
		files = append(files, file{digest: fileDigest(fmt.Sprint(i), size), hash: PathHash(i)})
	}
	if late, unread := readEach(newQueue(Exact, nil, wide()), files, 1); late > 0 || unread > 0 {
		t.Errorf("of a profile that is right %d files are late, and %d bytes in vain", late, unread)
	}
	most := exactCredit + quickCredit + int64(len(files)/every*size/2) + bytesPerCall
	if _, unread := readEach(newQueue(Exact, nil, wide()), files, every); unread > most {
		t.Errorf("%d bytes were asked for in vain, want at most %d", unread, most)
	}
}

// A file that waits for credit when the action opens it brings more credit instead of neighbours,
// with any profile, but neighbours, too, once most of the latest files were delayed.
func TestQueueJudgesDelays(t *testing.T) {
	const size = 50_000
	for _, o := range []Origin{Exact, Coarse} {
		q := newQueue(o, nil, &pace{window: 1 << 20})
		var files []file
		for i := range 400 {
			files = append(files, file{digest: fileDigest(fmt.Sprint(i), size), hash: PathHash(i)})
		}
		q.foresee(files)
		asked := 0
		var got []follow.Foresight
		read := func(i int) {
			got = append(got, q.read(PathHash(i), 0))
			for batch, _ := q.take(); len(batch) > 0; batch, _ = q.take() {
				asked += len(batch)
				q.ended(batch, false)
			}
		}
		read(0) // which nothing can have been requested for
		first := asked
		got = nil
		for i := range manyDelays {
			read(len(files) - 1 - i)
		}
		if more := (asked - first) * size; more < manyDelays<<20/delayedShare {
			t.Errorf("%s: %d bytes more are asked for", o, more)
		}
		for i := range manyDelays {
			read(1 + i)
		}
		read(len(files) - 1 - manyDelays)
		want := slices.Repeat([]follow.Foresight{follow.Delayed}, manyDelays-1)
		want = append(want, follow.Lacked)
		want = append(want, slices.Repeat([]follow.Foresight{follow.Foreseen}, manyDelays)...)
		want = append(want, follow.Delayed)
		if !slices.Equal(got, want) {
			t.Errorf("%s: files are %v, want %v", o, got, want)
		}
	}
}
