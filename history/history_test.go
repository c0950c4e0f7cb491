package history

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// recordOf returns the i-th record of a farm.
func recordOf(i int) *historypb.Record {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	outcome := historypb.Outcome_SUCCEEDED
	if i%7 == 0 {
		outcome = historypb.Outcome_FAILED
	}
	ended := epoch.Add(time.Duration(i) * time.Second)
	return &historypb.Record{
		Operation:    fmt.Sprintf("operations/%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint32()&0xffff, i),
		Action:       fmt.Sprintf("%016x%016x%016x%016x/142", r.Uint64(), r.Uint64(), r.Uint64(), i),
		InstanceName: fmt.Sprintf("team-%d", i%3), DigestFunction: "sha256", Outcome: outcome, ExitCode: int32(outcome) - 1,
		Target: fmt.Sprintf("//src/package%d:target%d", i%40, i%1000), Mnemonic: []string{"CppCompile", "GoLink", "Genrule"}[i%3],
		User: []string{"", "alice", "bob"}[i%3], Invocation: fmt.Sprintf("invocation-%d", i/100), Worker: fmt.Sprintf(`{"host":"w%d"}`, i%5),
		Queued: timestamppb.New(ended.Add(-time.Duration(i%50+10) * time.Second)), Started: timestamppb.New(ended.Add(-time.Duration(i%50) * time.Second)),
		Ended: timestamppb.New(ended), Attempts: int32(1 + i%11/10),
	}
}

// recordsOf returns the first n records, for comparison.
func recordsOf(n int) []*historypb.Record {
	list := make([]*historypb.Record, n)
	for i := range list {
		list[i] = recordOf(i)
	}
	return list
}

func open(t *testing.T, folder string, o Options) *Store {
	t.Helper()
	s, err := Open(folder, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fill(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if !s.Add(recordOf(i)) {
			t.Fatalf("record %d is not taken", i)
		}
		if i%1000 == 0 {
			s.write(false)
		}
	}
}

// find returns all records that Find returns, over all pages.
func find(t *testing.T, s *Store, q Query) (all []*historypb.Record) {
	t.Helper()
	for {
		list, next, err := s.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > q.Limit || next != "" && len(list) < q.Limit {
			t.Fatalf("a page of %d has %d records, next %q", q.Limit, len(list), next)
		}
		all = append(all, list...)
		if q.After = next; next == "" {
			return all
		}
	}
}

// TestFind compares searches in memory, in files, and in files after a restart with a simple model.
func TestFind(t *testing.T) {
	const n = 5000
	folder := t.TempDir()
	written := open(t, folder, Options{Keep: 14 * 1000 * time.Second}) // a segment is 1000 records
	fill(t, written, 0, n)
	written.write(true)
	if len(written.segments) < 4 {
		t.Fatalf("%d segments", len(written.segments))
	}
	memory := open(t, "", Options{})
	fill(t, memory, 0, n)
	records := recordsOf(n)
	check := func(where string, s *Store) {
		for name, c := range map[string]struct {
			query Query
			is    func(i int, r *historypb.Record) bool
		}{
			"all":       {Query{}, func(int, *historypb.Record) bool { return true }},
			"operation": {Query{Operation: recordOf(1234).GetOperation()}, func(i int, _ *historypb.Record) bool { return i == 1234 }},
			"action":    {Query{Action: recordOf(4321).GetAction()}, func(i int, _ *historypb.Record) bool { return i == 4321 }},
			"operations": {
				Query{Operation: recordOf(1234).GetOperation()[:len("operations/")+9] + "*"},
				func(i int, _ *historypb.Record) bool { return i == 1234 },
			},
			"actions": {
				Query{Action: recordOf(4321).GetAction()[:12] + "*2"},
				func(i int, _ *historypb.Record) bool { return i == 4321 },
			},
			"no actions": {Query{Action: recordOf(4321).GetAction()[:12] + "*3"}, func(int, *historypb.Record) bool { return false }},
			"exactly": {
				Query{Action: recordOf(4321).GetAction()[:12] + "*2", Exact: true},
				func(int, *historypb.Record) bool { return false },
			},
			"worker":         {Query{Where: map[Field]string{Worker: "host=w3"}}, func(i int, _ *historypb.Record) bool { return i%5 == 3 }},
			"text of worker": {Query{Text: "host=W4"}, func(i int, _ *historypb.Record) bool { return i%5 == 4 }},
			"target":         {Query{Where: map[Field]string{Target: "//src/package7:*"}}, func(i int, _ *historypb.Record) bool { return i%40 == 7 }},
			"two": {
				Query{Where: map[Field]string{Mnemonic: "GoLink", Worker: "*w?*", Invocation: "invocation-12"}},
				func(i int, _ *historypb.Record) bool { return i%3 == 1 && i/100 == 12 },
			},
			"failed": {
				Query{Outcomes: []historypb.Outcome{historypb.Outcome_FAILED, historypb.Outcome_ERROR}},
				func(i int, _ *historypb.Record) bool { return i%7 == 0 },
			},
			"retried": {Query{Retried: true}, func(i int, _ *historypb.Record) bool { return i%11 == 10 }},
			"time": {
				Query{Since: epoch.Add(900 * time.Second), Before: epoch.Add(2100 * time.Second)},
				func(i int, _ *historypb.Record) bool { return i >= 900 && i < 2100 },
			},
			"slow": {Query{MinRun: 49 * time.Second}, func(i int, _ *historypb.Record) bool { return i%50 == 49 }},
			"text": {Query{Text: "GOLINK"}, func(i int, _ *historypb.Record) bool { return i%3 == 1 }},
			"text of an action": {
				Query{Text: recordOf(77).GetAction()[:12]},
				func(i int, _ *historypb.Record) bool { return i == 77 },
			},
			"text of an operation": {
				Query{Text: strings.ToUpper(recordOf(78).GetOperation()[len("operations/"):][:12])},
				func(i int, _ *historypb.Record) bool { return i == 78 },
			},
			"nothing": {Query{Text: "no such thing"}, func(int, *historypb.Record) bool { return false }},
			"owned": {
				Query{Owned: func(user, instance string) bool { return user == "alice" && instance == "team-1" }},
				func(i int, _ *historypb.Record) bool { return i%3 == 1 },
			},
		} {
			var want []*historypb.Record
			for i := n - 1; i >= 0; i-- {
				if r := records[i]; c.is(i, r) {
					want = append(want, r)
				}
			}
			c.query.Limit = 997
			got := find(t, s, c.query)
			if !slices.EqualFunc(got, want, func(a, b *historypb.Record) bool { return proto.Equal(a, b) }) {
				t.Errorf("%s, %s: %d records, want %d", where, name, len(got), len(want))
			}
		}
		slowest := find(t, s, Query{Order: Slowest, Limit: 5, Where: map[Field]string{Mnemonic: "GoLink"}})
		if len(slowest) != 5 || slowest[0].GetOperation() != recordOf(4999).GetOperation() { // the latest of 49 seconds
			t.Errorf("%s: the slowest are %v", where, slowest)
		}
	}
	check("memory", memory)
	check("files", written)
	if err := written.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, folder, Options{})
	check("restarted", again)
	if _, err := Open(folder, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	if _, _, err := again.Find(t.Context(), Query{After: "x", Limit: 1}); !errors.Is(err, ErrToken) {
		t.Errorf("an invalid page token: %v", err)
	}
}

// TestSlowestByName finds the slowest operations of which the index has too little: the end of a name
// or of a hash, in the memory and in files.
func TestSlowestByName(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{})
	fill(t, s, 0, 3000)
	check := func(where string, s *Store) {
		t.Helper()
		for name, q := range map[string]Query{
			"operation": {Operation: "*" + recordOf(1201).GetOperation()[20:]}, // it ran for a second
			"action":    {Action: "*" + recordOf(1201).GetAction()[20:]},
		} {
			q.Order, q.Limit = Slowest, 5
			if got := find(t, s, q); len(got) != 1 || !proto.Equal(got[0], recordOf(1201)) {
				t.Errorf("%s: the slowest by the end of an %s are %v", where, name, got)
			}
		}
	}
	check("memory", s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, folder, Options{})
	check("files", again)
}

// TestTimesWithinMilliseconds limits times more exactly than the index has them.
func TestTimesWithinMilliseconds(t *testing.T) {
	s := open(t, "", Options{})
	at := func(i int) time.Time { return epoch.Add(time.Duration(i) * 100 * time.Microsecond) }
	for i := range 40 {
		r := recordOf(i)
		r.Ended, r.Started = timestamppb.New(at(i)), timestamppb.New(at(-3*i))
		s.Add(r)
	}
	for _, order := range []Order{Pages, Slowest} {
		for i := range 40 {
			q := Query{Order: order, Limit: 100, Since: at(i)}
			if got := find(t, s, q); len(got) != 40-i {
				t.Errorf("order %d: %d records ended since record %d", order, len(got), i)
			}
			q = Query{Order: order, Limit: 100, Before: at(i)}
			if got := find(t, s, q); len(got) != i {
				t.Errorf("order %d: %d records ended before record %d", order, len(got), i)
			}
			q = Query{Order: order, Limit: 100, MinRun: at(4 * i).Sub(epoch)}
			if got := find(t, s, q); len(got) != 40-i {
				t.Errorf("order %d: %d records ran as long as record %d", order, len(got), i)
			}
		}
	}
}

// TestCrash cuts the files anywhere, as a crash would. All blocks before the cut must be there, and
// new records are added after them.
func TestCrash(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{})
	fill(t, s, 0, 3000)
	s.write(true)
	name := s.segments[0].path
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	records := recordsOf(3000)
	for _, left := range []int{0, 5, len(magic), len(magic) + 3, len(whole) / 2, len(whole) - 1, len(whole)} {
		for _, junk := range []string{"", "\xff\xff\xff\xff", strings.Repeat("\x00", 100)} {
			folder := t.TempDir()
			file := filepath.Join(folder, filepath.Base(name))
			if err := os.WriteFile(file, slices.Concat(whole[:left], []byte(junk)), 0o600); err != nil {
				t.Fatal(err)
			}
			if left < len(magic) && junk != "" {
				continue // has another format
			}
			s := open(t, folder, Options{})
			before := find(t, s, Query{Limit: 1000})
			if left == len(whole) && len(before) != 3000 {
				t.Errorf("%d of 3000 records are there", len(before))
			}
			for i, r := range before {
				if want := records[len(before)-1-i]; !proto.Equal(r, want) {
					t.Fatalf("%d of %d bytes: record %d is %v, want %v", left, len(whole), i, r, want)
				}
			}
			fill(t, s, len(before), len(before)+10)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, folder, Options{})
			if n := len(find(t, s, Query{Limit: 1000})); n != len(before)+10 {
				t.Errorf("%d of %d bytes: %d records after %d and 10 more", left, len(whole), n, len(before))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDamagedIndex changes a byte of an index. The index must be rebuilt: all records are found.
func TestDamagedIndex(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{})
	fill(t, s, 0, 200)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "00000001.index")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/200 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x40
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, folder, Options{})
		want := slices.DeleteFunc(recordsOf(200), func(r *historypb.Record) bool { return r.GetMnemonic() != "GoLink" })
		slices.Reverse(want)
		if got := find(t, s, Query{Limit: 300, Text: "GoLink"}); !slices.EqualFunc(got, want, equalRecords) {
			t.Errorf("byte %d: %d records are found, want %d", at, len(got), len(want))
		}
		s.mu.Lock()
		s.segments = nil
		s.mu.Unlock()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEarlierFormat has a segment of the first 40 records that an earlier version wrote, in two
// blocks: its records are found, before and after its index is made, beside new ones.
func TestEarlierFormat(t *testing.T) {
	folder := t.TempDir()
	earlier, err := os.ReadFile(filepath.Join("testdata", "1.records"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "00000001.records"), earlier, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{40, 50, 60} {
		s := open(t, folder, Options{})
		fill(t, s, len(find(t, s, Query{Limit: 100})), want)
		got := find(t, s, Query{Limit: 100})
		slices.Reverse(got)
		if !slices.EqualFunc(got, recordsOf(want), func(a, b *historypb.Record) bool { return proto.Equal(a, b) }) {
			t.Errorf("%d records are not the first %d", len(got), want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "00000003.records")
	if err := os.WriteFile(file, []byte("forerunner history 9\nand so on"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(folder, Options{})
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a file of another version: %v", err)
	}
	if after, _ := os.ReadFile(file); !strings.HasPrefix(string(after), "forerunner history 9") {
		t.Error("the file was changed")
	}
}

// TestBounds removes records that are too old or too many.
func TestBounds(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{Keep: 1400 * time.Second})
	fill(t, s, 0, 5000)
	s.write(true)
	s.expire(epoch.Add(5000 * time.Second))
	all := find(t, s, Query{Limit: 1000})
	if len(all) < 1400 || len(all) > 1500 || !proto.Equal(all[0], recordOf(4999)) {
		t.Errorf("of 5000 seconds %d are left, want 1400 and the others in their files", len(all))
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) > 2*16+1 {
		t.Errorf("%d files are left: %q", len(left), left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for where, folder := range map[string]string{"files": t.TempDir(), "memory": ""} {
		s := open(t, folder, Options{MaxBytes: 256 << 10})
		if folder == "" {
			s.options.MaxBytes = 256 << 10
		}
		for from := 0; from < 15_000; from += 500 {
			fill(t, s, from, from+500)
			s.write(true)
			s.expire(epoch)
		}
		stats := s.Stats()
		if stats.Bytes > 256<<10 || stats.Bytes < 128<<10 || stats.Records == 0 || stats.Lost > 0 {
			t.Errorf("%s: %+v", where, stats)
		}
		if got, want := len(find(t, s, Query{Limit: 1000})), int(stats.Records); got != want {
			t.Errorf("%s: %d records are found, %d counted", where, got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory adds records with long and different texts, as a hostile client would send, with
// little memory.
func TestMemory(t *testing.T) {
	folder := t.TempDir()
	o := Options{Memory: 32 << 20}
	s := open(t, folder, o)
	const n = 3000
	for i := range n {
		r := recordOf(i)
		r.Target, r.Mnemonic, r.Invocation = longText(i, 1), longText(i, 2), longText(i, 3)
		s.Add(r)
		for _, g := range s.segments {
			if g.open() && g.index.bytes > o.indexBytes()+8<<10 {
				t.Fatalf("after %d records an index takes %d bytes", i, g.index.bytes)
			}
		}
		if i%100 == 99 {
			s.write(false)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"+indexSuffix))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d indexes of %d bytes each at most, for 9 MB of texts: %v", len(files), o.indexBytes(), err)
	}
	for _, file := range files[:len(files)/2] {
		if err := os.Remove(file); err != nil { // as after a crash
			t.Fatal(err)
		}
	}
	s = open(t, folder, o)
	if all := find(t, s, Query{Limit: n, Text: "1." + strings.Repeat("long", 9)}); len(all) != n {
		t.Errorf("%d of %d are found", len(all), n)
	}
	if all := find(t, s, Query{Limit: n, Where: map[Field]string{Mnemonic: longText(7, 2)}}); len(all) != 1 {
		t.Errorf("%d are found of one", len(all))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func longText(i, of int) string { return fmt.Sprintf("%d/%d.%s", i, of, strings.Repeat("long", 250)) }

// TestPagesOfBytes reads pages of limited size. Each has at least one record.
func TestPagesOfBytes(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var want []*historypb.Record
	for i := range 100 {
		r := recordOf(i)
		r.Message = strings.Repeat("x", 1000*(i%30))
		s.Add(proto.CloneOf(r))
		want = append(want, r)
	}
	slices.Reverse(want)
	var all []*historypb.Record
	pages := 0
	for q := (Query{Limit: 1000, MaxBytes: 20_000}); ; pages++ {
		found, next, err := s.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, r := range found {
			size += proto.Size(r)
		}
		if size > q.MaxBytes && len(found) > 1 {
			t.Errorf("a page of %d records has %d bytes", len(found), size)
		}
		all = append(all, found...)
		if q.After = next; next == "" {
			break
		}
	}
	if len(all) != len(want) || pages < 70 || pages > 100 {
		t.Fatalf("%d records on %d pages", len(all), pages)
	}
	for i, r := range all {
		if !proto.Equal(r, want[i]) {
			t.Fatalf("record %d is %v, want %v", i, r, want[i])
		}
	}
}

// TestDiskIsAway keeps the records that cannot be written in memory until they can.
func TestDiskIsAway(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{Keep: 14 * 100 * time.Second})
	fill(t, s, 0, 50)
	s.write(true)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 100, 300) // starts new files
	s.write(true)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1000, 1050)
	s.write(true)
	got := find(t, s, Query{Limit: 1000})
	if len(got) < 200 || !proto.Equal(got[0], recordOf(1049)) || s.Stats().Lost != 0 {
		t.Errorf("%d records are found, %d lost", len(got), s.Stats().Lost)
	}
	// The waiting records are bounded.
	for i := range 1 << 17 {
		r := recordOf(i)
		r.Message = strings.Repeat("x", 10_000)
		if !s.Add(r) {
			return
		}
	}
	t.Error("a gigabyte of records waits to be written")
}

// TestTogether adds, writes, expires and finds records concurrently.
func TestTogether(t *testing.T) {
	s := open(t, t.TempDir(), Options{Keep: 100 * time.Second, MaxBytes: 1 << 20})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			s.Add(recordOf(i))
		}
	}()
	for i := 0; ; i++ {
		s.write(i%3 == 0)
		for _, r := range find(t, s, Query{Limit: 10_000, Where: map[Field]string{Mnemonic: "GoLink"}}) {
			if r.GetMnemonic() != "GoLink" {
				t.Fatalf("found %v", r)
			}
		}
		s.expire(epoch.Add(3000 * time.Second))
		select {
		case <-done:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// TestReaderKeepsItsBlock reads a record before its block is written. Further records then reuse
// the memory of the block.
func TestReaderKeepsItsBlock(t *testing.T) {
	s := open(t, "", Options{})
	s.Add(recordOf(0))
	m, err := s.match(s.segments[0], &Query{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	encoded, err := m.read(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		s.Flush()
		s.Add(recordOf(i + 1))
	}
	r := &historypb.Record{}
	if err := proto.Unmarshal(encoded, r); err != nil || !proto.Equal(r, recordOf(0)) {
		t.Errorf("it became %v: %v", r, err)
	}
}

// TestCommandsInPlaceOfTargets: an operation without a target is found by its command line as lists
// show it, in memory, in files and after a restart, and as one without a target.
func TestCommandsInPlaceOfTargets(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{})
	at := func(i int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(1e12 + i)) }
	s.Add(&historypb.Record{Operation: "operations/1", Ended: at(1), Target: "//a:gcc"})
	s.Add(&historypb.Record{Operation: "operations/2", Ended: at(2), Arguments: []string{"/usr/bin/gcc", "-o", "my hello", "hello.c"}})
	s.Add(&historypb.Record{Operation: "operations/3", Ended: at(3), Arguments: []string{"sh", "-c", "x\ny\u202e"}})
	s.Add(&historypb.Record{Operation: "operations/4", Ended: at(4)})
	s.Add(&historypb.Record{Operation: "operations/5", Ended: at(5), Target: "\nodd"})
	names := func(q Query) (list string) {
		q.Limit = 10
		for _, r := range find(t, s, q) {
			list += strings.TrimPrefix(r.GetOperation(), "operations/")
		}
		return list
	}
	check := func(when string) {
		t.Helper()
		for text, want := range map[string]string{"gcc": "21", "GCC -o 'my": "2", "hello.c": "2", "sh -c $'x y\\342": "3", "[U+": "5", "x": "3"} {
			if got := names(Query{Text: text}); got != want {
				t.Errorf("%s: the text %q finds %q, want %q", when, text, got, want)
			}
		}
		for glob, want := range map[string]string{"*gcc*": "21", "/usr/bin/gcc*": "2", "//a:gcc": "1", "": "432", "*": "54321", "?odd": "5"} {
			if got := names(Query{Where: map[Field]string{Target: glob}}); got != want {
				t.Errorf("%s: the target %q finds %q, want %q", when, glob, got, want)
			}
		}
	}
	check("in memory")
	s.Flush()
	check("in a file")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder, Options{})
	check("with an index")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	indexes, err := filepath.Glob(filepath.Join(folder, "*"+indexSuffix))
	if err != nil || len(indexes) != 1 || os.Remove(indexes[0]) != nil {
		t.Fatal(indexes, err)
	}
	s = open(t, folder, Options{})
	defer s.Close()
	check("after a crash")
}

// TestNamesAsShown: a name with characters that are not seen is found by what lists show.
func TestNamesAsShown(t *testing.T) {
	s := open(t, "", Options{})
	s.Add(&historypb.Record{Operation: "operations/1", Target: "//a\u202eb", User: "ann\u200b", Ended: timestamppb.Now()})
	for _, q := range []Query{{Text: "a[U+202E]B"}, {Where: map[Field]string{Target: "//a[U+202E]b"}}, {Where: map[Field]string{User: "ann[U+200B]"}}, {Text: "a\u202e"}} {
		q.Limit = 10
		if n := len(find(t, s, q)); n != 1 {
			t.Errorf("%+v finds %d", q, n)
		}
	}
}

// TestMemoryOfSmallStore: what a Store in memory takes stays near its limit, also if that is small.
func TestMemoryOfSmallStore(t *testing.T) {
	s := open(t, "", Options{Memory: 8 << 20})
	for i := range 4000 {
		if !s.Add(recordOf(i)) {
			t.Fatalf("record %d is not taken", i)
		}
		if i%10 == 0 {
			s.write(true)
			s.expire(epoch)
		}
		var reserved int64
		for _, g := range s.segments {
			reserved += int64(cap(g.data)) + g.index.bytes
		}
		if most := 2*s.options.MaxBytes + 2*blockBytes; reserved > most {
			t.Fatalf("after %d records, %d segments reserve %d bytes, want at most %d", i, len(s.segments), reserved, most)
		}
	}
}
