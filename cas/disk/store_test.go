package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
)

func storeOpen(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// storePut stores text and returns its digest.
func storePut(t testing.TB, s *Store, text string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(text))
	if err := s.Put(context.Background(), d, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

// storeText returns the text of d, or the error.
func storeText(s *Store, d digest.Digest) string {
	b, err := s.ReadBlob(context.Background(), d)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// storeTempFiles lists what has not been cleaned up.
func storeTempFiles(t testing.TB, s *Store) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.TempDir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// storeReserved returns the bytes that are being written, or are to be.
func storeReserved(s *Store) int64 {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	return s.files.index.reserved
}

func TestStoreKeepsBlobs(t *testing.T) {
	ctx := context.Background()
	for _, fn := range digest.Functions() {
		for _, size := range []int{0, 1, 4095, copyBufferBytes, copyBufferBytes + 1, 3 << 20} {
			t.Run(fmt.Sprintf("%s %d", fn, size), func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), Options{})
				b := bytes.Repeat([]byte{'x'}, size)
				d := digest.Of(fn, b)
				if s.Contains(d) != (size == 0) {
					t.Error("there before the put")
				}
				if err := s.Put(ctx, d, iotest.HalfReader(bytes.NewReader(b))); err != nil {
					t.Fatal(err)
				}
				if err := s.Put(ctx, d, bytes.NewReader(b)); err != nil {
					t.Errorf("put again: %v", err)
				}
				if err := s.PutBytes(ctx, d, b); err != nil {
					t.Errorf("put bytes again: %v", err)
				}
				if got, err := s.ReadBlob(ctx, d); err != nil || !bytes.Equal(got, b) {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
				if names := storeTempFiles(t, s); len(names) > 0 {
					t.Errorf("left behind: %v", names)
				}
			})
		}
	}
}

func TestStoreFileIsNotWritableAndNamedByItsDigest(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	file, err := s.OpenBlob(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o444 {
		t.Errorf("mode %s", info.Mode())
	}
	want := filepath.Join(s.Dir(), "sha256", d.Hash()[:2], d.Hash()+"-4")
	if file.Name() != want {
		t.Errorf("name %s, want %s", file.Name(), want)
	}
	if _, err := file.Write([]byte("x")); err == nil {
		t.Error("a blob can be written")
	}
}

func TestStoreRefuses(t *testing.T) {
	broken := errors.New("the line is broken")
	text := digest.Of(digest.SHA256, []byte("text"))
	longer, err := digest.Parse(digest.SHA256, text.Hash(), 5)
	if err != nil {
		t.Fatal(err)
	}
	large, err := digest.Parse(digest.SHA256, text.Hash(), digest.MaxSizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		d    digest.Digest
		r    io.Reader
		want error
	}{
		"other bytes":      {d: text, r: strings.NewReader("tent"), want: cas.ErrCorrupt},
		"too few":          {d: text, r: strings.NewReader("tex"), want: cas.ErrCorrupt},
		"none":             {d: text, r: strings.NewReader(""), want: cas.ErrCorrupt},
		"too many":         {d: text, r: strings.NewReader("texts"), want: cas.ErrCorrupt},
		"a lying size":     {d: longer, r: strings.NewReader("text"), want: cas.ErrCorrupt},
		"not empty":        {d: digest.SHA256.Empty(), r: strings.NewReader("x"), want: cas.ErrCorrupt},
		"a failing reader": {d: text, r: io.MultiReader(strings.NewReader("te"), iotest.ErrReader(broken)), want: broken},
		"a late failure":   {d: text, r: io.MultiReader(strings.NewReader("text"), iotest.ErrReader(broken)), want: broken},
		"no digest":        {r: strings.NewReader(""), want: digest.ErrInvalid},
		"too large":        {d: large, r: strings.NewReader(""), want: cas.ErrNoSpace},
		"cancelled":        {ctx: done, d: text, r: strings.NewReader("text"), want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{MaxBytes: 100})
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			if err := s.Put(ctx, c.d, c.r); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if names := storeTempFiles(t, s); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
			s.files.mu.Lock()
			defer s.files.mu.Unlock()
			if s.files.index.reserved != 0 || s.files.index.count != 0 {
				t.Errorf("%d bytes still reserved, %d blobs", s.files.index.reserved, s.files.index.count)
			}
		})
	}
}

func TestStoreVerifiesBytesOfWhatIsThere(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	for _, wrong := range []string{"tent", "tex", "texts"} {
		if err := s.PutBytes(context.Background(), d, []byte(wrong)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestStoreEvictsWhatIsUnusedForLongest(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	a, b, c := storePut(t, s, "aaaa"), storePut(t, s, "bbbb"), storePut(t, s, "cccc")
	uses := map[string]func(){
		"Contains":    func() { s.Contains(a) },
		"FindMissing": func() { _, _ = s.FindMissing(ctx, []digest.Digest{a}) },
		"ReadBlob":    func() { storeText(s, a) },
		"Put":         func() { storePut(t, s, "aaaa") },
		"PutBytes":    func() { _ = s.PutBytes(ctx, a, []byte("aaaa")) },
		"unpin":       func() { unpin, _ := s.Pin(a); unpin() },
	}
	for name, use := range uses {
		storePut(t, s, "bbbb")
		storePut(t, s, "cccc")
		use()
		d := storePut(t, s, "dddd")
		missing, err := s.FindMissing(ctx, []digest.Digest{d, c, b, a})
		if err != nil || len(missing) != 1 || missing[0] != b {
			t.Errorf("%s does not count as use: missing %v, %v", name, missing, err)
		}
		if _, err := os.Stat(s.files.path(b)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the evicted file: %v", name, err)
		}
		storePut(t, s, "aaaa")
		generation, _ := s.files.pinFile(d)
		s.files.unpin(d)
		s.files.drop(d, generation, "is not wanted by this test any longer")
	}
	if got := s.Stats(); got.EvictedBlobs != int64(len(uses)) || got.EvictedBytes != 4*got.EvictedBlobs ||
		got.Bytes != 8 || got.Blobs != 2 || got.MaxBytes != 12 {
		t.Errorf("stats %+v", got)
	}
}

func TestStoreMakesRoom(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	a, b, c := storePut(t, s, "aaaa"), storePut(t, s, "bbbb"), storePut(t, s, "cccc")
	unpin, _ := s.Pin(a)
	defer unpin()
	if made := s.Evict(3); made != 4 || s.Contains(b) || !s.Contains(a) || !s.Contains(c) {
		t.Errorf("made %d bytes of room, a %v, b %v, c %v", made, s.Contains(a), s.Contains(b), s.Contains(c))
	}
	if made := s.Evict(100); made != 4 || !s.Contains(a) {
		t.Errorf("made %d bytes of room with all but a pinned blob, which is there: %v", made, s.Contains(a))
	}
	if _, err := os.Stat(s.files.path(c)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the evicted file: %v", err)
	}
}

func TestStoreDoesNotEvictWhatIsPinned(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 8})
	a := storePut(t, s, "aaaa")
	first, ok := s.Pin(a)
	second, again := s.Pin(a)
	if !ok || !again {
		t.Fatal("no pin")
	}
	b := storePut(t, s, "bbbb")
	storePut(t, s, "cccc")
	if storeText(s, a) != "aaaa" || s.Contains(b) {
		t.Error("a pinned blob was evicted")
	}
	large := digest.Of(digest.SHA256, []byte("eightful"))
	first()
	first() // does nothing
	if err := s.PutBytes(ctx, large, []byte("eightful")); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("no room for it: %v", err)
	}
	second()
	if err := s.PutBytes(ctx, large, []byte("eightful")); err != nil || s.Contains(a) {
		t.Errorf("unpinned: %v", err)
	}
	if _, ok := s.Pin(a); ok {
		t.Error("pinned what is not there")
	}
	if unpin, ok := s.Pin(digest.BLAKE3.Empty()); !ok {
		t.Error("the empty blob cannot be pinned")
	} else {
		unpin()
	}
}

func TestStoreAnnouncedSizeEvictsNothingByItself(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 30})
	d := storePut(t, s, strings.Repeat("x", 1<<20))
	huge, err := digest.Parse(digest.SHA256, d.Hash(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(context.Background(), huge, strings.NewReader("little")); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("error %v", err)
	}
	if !s.Contains(d) {
		t.Error("a blob went for one that never came")
	}
}

func TestStoreReadsOnAfterEviction(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 4})
	d := storePut(t, s, "aaaa")
	file, err := s.OpenBlob(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	storePut(t, s, "bbbb")
	if b, err := io.ReadAll(file); string(b) != "aaaa" || err != nil || s.Contains(d) {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestStoreNoticesDamage(t *testing.T) {
	read := map[string]func(s *Store, d digest.Digest) error{
		"opened": func(s *Store, d digest.Digest) error {
			_, err := s.OpenBlob(context.Background(), d)
			return err
		},
		"read": func(s *Store, d digest.Digest) error {
			_, err := s.ReadBlob(context.Background(), d)
			return err
		},
	}
	for name, damage := range map[string]func(path string) error{
		"removed":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 2) },
		"longer":    func(path string) error { return os.Truncate(path, 20) },
		"a link": func(path string) error {
			other := filepath.Join(filepath.Dir(path), "other")
			return errors.Join(os.Remove(path), os.WriteFile(other, []byte("evil"), 0o644), os.Symlink(other, path))
		},
		"a folder": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for _, how := range []string{"opened", "read", "opened, pinned", "read, pinned"} {
			how, pinned := strings.CutSuffix(how, ", pinned")
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			unpin := func() {}
			if pinned {
				unpin, _ = s.Pin(d)
			}
			if err := damage(s.files.path(d)); err != nil {
				t.Fatal(err)
			}
			err := read[how](s, d)
			var missing *cas.MissingError
			if !errors.As(err, &missing) || missing.Digests[0] != d || s.Contains(d) || s.Stats().DamagedBlobs != 1 {
				t.Errorf("%s, %s: error %v, there: %t", name, how, err, s.Contains(d))
			}
			storePut(t, s, "text")
			if storeText(s, d) != "text" {
				t.Errorf("%s: put again: %s", name, storeText(s, d))
			}
			unpin()
		}
	}
}

func TestStoreIsUsedByOneAtATime(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
	d := storePut(t, s, "text")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.Contains(d) || s.PutBytes(context.Background(), d, []byte("text")) == nil {
		t.Error("a closed store works")
	}
	if again := storeOpen(t, dir, Options{}); storeText(again, d) != "text" {
		t.Error("the blob did not survive")
	}
}

func TestStoreOrderOfUseSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{MaxBytes: 16})
	var ds []digest.Digest
	for i, text := range []string{"aaaa", "bbbb", "cccc", "dddd"} {
		ds = append(ds, storePut(t, s, text))
		used := time.Now().Add(-time.Duration(i) * 2 * time.Hour)
		if err := os.Chtimes(s.files.path(ds[i]), used, used); err != nil {
			t.Fatal(err)
		}
	}
	// From here on "dddd" is the oldest by its file, until it is used.
	_ = s.Close()
	s = storeOpen(t, dir, Options{MaxBytes: 16})
	s.Contains(ds[3])
	_ = s.Close()
	s = storeOpen(t, dir, Options{MaxBytes: 8})
	missing, err := s.FindMissing(context.Background(), ds)
	if err != nil || len(missing) != 2 || missing[0] != ds[1] || missing[1] != ds[2] {
		t.Errorf("missing %v, want %v: %v", missing, ds[1:3], err)
	}
}

// TestFoundBlobsAreUsed: a blob that a caller was told exists is evicted only after all blobs that
// have not been used since.
func TestFoundBlobsAreUsed(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	defer s.Close()
	found := storePut(t, s, "aaaa")
	others := []digest.Digest{storePut(t, s, "bbbb"), storePut(t, s, "cccc")}
	if missing, err := s.FindMissing(t.Context(), []digest.Digest{found}); err != nil || len(missing) > 0 {
		t.Fatalf("%v, %v", missing, err)
	}
	for i, text := range []string{"dddd", "eeee"} {
		storePut(t, s, text)
		if !s.Has(found) || s.Has(others[i]) {
			t.Errorf("after %q: found %v, other %v", text, s.Has(found), s.Has(others[i]))
		}
	}
}

func TestStoreTakesAShareOfTheDiskByDefault(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	free, err := (&folder.Folder{Dir: dir}).Free()
	if got := s.Stats().MaxBytes; err != nil || got < free/2 || got >= free {
		t.Errorf("bound %d of %d free, %v", got, free, err)
	}
	if _, err := Open(t.TempDir(), Options{MaxBytes: -1}); err == nil {
		t.Error("opened with a negative bound")
	}
}

// storeSkip skips a test that needs what this machine lacks, except where all
// must run.
func storeSkip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func TestStoreUnderManyHands(t *testing.T) {
	ctx := context.Background()
	const hands = 8
	texts := make([]string, 60)
	// Each hand may write one and hold another of at most 70 bytes.
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: hands * 2 * 70})
	for i := range texts {
		texts[i] = strings.Repeat(string(rune('A'+i)), 10+i)
	}
	var wg sync.WaitGroup
	for hand := range hands {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(hand), 7))
			for range 300 {
				text := texts[random.IntN(len(texts))]
				d := digest.Of(digest.SHA256, []byte(text))
				switch random.IntN(5) {
				case 0, 1:
					if err := s.Put(ctx, d, strings.NewReader(text)); err != nil {
						t.Error(err)
					}
				case 2:
					if b, err := s.ReadBlob(ctx, d); err == nil && string(b) != text || err != nil && !errors.Is(err, cas.ErrNotFound) {
						t.Errorf("read %q, %v, want %q", b, err, text)
					}
				case 3:
					if unpin, ok := s.Pin(d); ok {
						if got := storeText(s, d); got != text {
							t.Errorf("pinned, but %s", got)
						}
						unpin()
					}
				case 4:
					path := filepath.Join(s.TempDir(), fmt.Sprint("hand-", hand))
					if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
						t.Error(err)
					}
					if _, err := s.Take(ctx, path, d.Function()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	storeWantConsistent(t, s)
}

// storeWantConsistent checks that index and disk agree when nothing is going on.
func storeWantConsistent(t *testing.T, s *Store) {
	t.Helper()
	disk := &files{Folder: s.files.Folder, layout: blobLayout(), log: s.files.log}
	if err := disk.scan(); err != nil {
		t.Fatal(err)
	}
	got, want := s.files.index, disk.index
	if got.present != want.present || got.count != want.count || len(got.entries) != len(want.entries) ||
		got.reserved != 0 || got.pinned != 0 || got.present > got.max {
		t.Errorf("index: %d bytes, %d blobs, %d entries, %d reserved, %d pinned; disk: %d bytes, %d blobs",
			got.present, got.count, len(got.entries), got.reserved, got.pinned, want.present, want.count)
	}
	if names := storeTempFiles(t, s); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func FuzzParseBlobPath(f *testing.F) {
	hash := digest.SHA256.Empty().Hash()
	for _, path := range []string{
		"sha256/e3/" + hash + "-7", "blake3/e3/" + hash + "-1234567890", // the good ones
		"sha256/e3/" + hash + "-0", "sha256/e4/" + hash + "-7", "sha256/e/" + hash + "-7", "sha1/e3/" + hash + "-7",
		"sha256/e3/" + hash + "-07", "sha256/e3/" + hash + "-+7", "sha256/e3/" + hash, "sha256/e3/" + hash + "-7-7", "", "//-",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if d, ok := ParseBlobPath(path); ok && (BlobPath(d) != path || d.IsEmptyBlob()) {
			t.Errorf("%q is %s, whose path is %q", path, d, BlobPath(d))
		}
	})
}

func TestStoreParsesItsOwnPaths(t *testing.T) {
	for _, fn := range digest.Functions() {
		d := digest.Of(fn, []byte("text"))
		if got, ok := ParseBlobPath(BlobPath(d)); !ok || got != d {
			t.Errorf("%s: %s, %t", BlobPath(d), got, ok)
		}
	}
}

// TestStoreOpensAgainForItsUser: the file of the empty blob exists and is not writable.
func TestStoreOpensAgainForItsUser(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := storeOpen(t, dir, Options{})
		before, err := os.Stat(s.files.emptyPath())
		if err != nil || before.Size() != 0 || before.Mode() != 0o444 {
			t.Fatalf("%v, %v", before, err)
		}
		if err := s.files.mendEmpty(); err != nil {
			t.Error(err)
		}
		if after, err := os.Stat(s.files.emptyPath()); err != nil || !os.SameFile(before, after) {
			t.Errorf("it is made anew: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemovedFolders removes folders of an open store, as programs do that clean up old files.
func TestRemovedFolders(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	for i, dir := range []string{s.TempDir(), filepath.Join(s.Dir(), "sha256")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if d := storePut(t, s, fmt.Sprint("text", i)); !s.Has(d) {
			t.Errorf("without %s nothing can be put", dir)
		}
	}
}
