package history

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

func equalRecords(a, b *historypb.Record) bool { return proto.Equal(a, b) }

// threeSegments makes a folder with the first 300 records in three segments.
func threeSegments(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for i := range 3 {
		s := open(t, folder, Options{})
		fill(t, s, 100*i, 100*(i+1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestDamagedFiles damages one of three segments beyond use. The Store must open, say so, have all
// records of the others, and keep new ones.
func TestDamagedFiles(t *testing.T) {
	replace := func(t *testing.T, path string, by []byte) {
		t.Helper()
		if err := os.WriteFile(path, by, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	whole := slices.Concat(recordsOf(300))
	for name, test := range map[string]struct {
		damage func(t *testing.T, records, index string)
		left   int // records of the damaged segment
	}{
		"zeros": {func(t *testing.T, records, index string) {
			replace(t, records, make([]byte, 5000))
		}, 0},
		"zeros without an index": {func(t *testing.T, records, index string) {
			replace(t, records, make([]byte, 5000))
			remove(t, index)
		}, 0},
		"a damaged beginning": {func(t *testing.T, records, index string) {
			b, err := os.ReadFile(records)
			if err != nil {
				t.Fatal(err)
			}
			b[3] ^= 1
			replace(t, records, b)
		}, 100},
		"a folder": {func(t *testing.T, records, index string) {
			remove(t, records)
			if err := os.Mkdir(records, 0o700); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"a folder in place of the index": {func(t *testing.T, records, index string) {
			remove(t, index)
			if err := os.Mkdir(index, 0o700); err != nil {
				t.Fatal(err)
			}
		}, 100},
		"no file":       {func(t *testing.T, records, index string) { remove(t, records) }, 0},
		"an empty file": {func(t *testing.T, records, index string) { replace(t, records, nil) }, 0},
		"a cut index": {func(t *testing.T, records, index string) {
			if err := os.Truncate(index, 1000); err != nil {
				t.Fatal(err)
			}
		}, 100},
	} {
		for _, number := range []string{"00000001", "00000002", "00000003"} {
			t.Run(name+" "+number, func(t *testing.T) {
				folder := threeSegments(t)
				records := filepath.Join(folder, number+segmentSuffix)
				test.damage(t, records, indexPath(records))
				at := 100 * int(number[7]-'1')
				want := slices.Concat(whole[:at+test.left], whole[at+100:])
				check := func(s *Store) {
					t.Helper()
					got := find(t, s, Query{Limit: 1000})
					slices.Reverse(got)
					if !slices.EqualFunc(got, want, equalRecords) {
						t.Errorf("%d records are not those %d", len(got), len(want))
					}
				}
				s, logs := openOn(t, &disk{}, folder, Options{})
				check(s)
				if logs.Len() == 0 {
					t.Error("nothing was logged")
				}
				fill(t, s, 300, 350)
				want = slices.Concat(want, recordsOf(350)[300:])
				s.write(true)
				check(s)
				if err := s.release(); err != nil { // as by a crash
					t.Fatal(err)
				}
				again := open(t, folder, Options{})
				check(again)
				again.expire(epoch)
				if err := again.Close(); err != nil && !strings.Contains(name, "folder in place") {
					t.Error(err)
				}
			})
		}
	}
}

// TestDamagedBlock damages one block, in a segment with and without an index: the records of all others
// must be there, and the log says once what is lost.
func TestDamagedBlock(t *testing.T) {
	for name, test := range map[string]struct {
		bad       int  // block
		isBegin   bool // everything from the beginning of the file to the block is damaged
		withIndex bool
	}{
		"with an index": {5, false, true}, "without an index": {5, false, false}, "at the beginning": {0, true, true},
	} {
		bad := test.bad
		folder := t.TempDir()
		s := open(t, folder, Options{})
		for i := range 3000 {
			s.Add(recordOf(i))
			if i%1000 == 999 {
				s.write(true)
			}
		}
		path := s.segments[0].path
		index := slices.Clone(s.segments[0].index.offsets)
		blocks := slices.Clone(s.segments[0].index.snapshot().blocks)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		broken := bytes.Clone(whole)
		length := binary.LittleEndian.Uint32(broken[index[bad]:])
		broken[index[bad]+blockHeader+length/2] ^= 1
		if test.isBegin {
			clear(broken[:index[bad]+blockHeader])
		}
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if !test.withIndex {
			if err := os.Remove(indexPath(path)); err != nil {
				t.Fatal(err)
			}
		}
		again, logs := openOn(t, &disk{}, folder, Options{})
		var want []*historypb.Record
		for i := range 3000 {
			if blocks[i] != uint32(bad) {
				want = append(want, recordOf(i))
			}
		}
		for range 2 {
			got := find(t, again, Query{Limit: 5000})
			slices.Reverse(got)
			if len(want) == 3000 || !slices.EqualFunc(got, want, equalRecords) {
				t.Errorf("%s: %d records are not those %d", name, len(got), len(want))
			}
		}
		if got := lines(logs); len(got) == 0 || len(got) > 2 || !strings.HasPrefix(got[len(got)-1], "a part of a file of records is damaged") {
			t.Errorf("%s: the log has %q", name, got)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(len(whole)) {
			t.Errorf("%s: the file is not as long as it was: %v, %v", name, info.Size(), err)
		}
	}
}
