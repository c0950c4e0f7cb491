package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// upload is what a test does to bring b for an instance name.
func (f *netFarm) upload(t *testing.T, instance string, b []byte) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, b)
	if err := f.tryUpload(t.Context(), instance, d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

// tryUpload says that b is d.
func (f *netFarm) tryUpload(ctx context.Context, instance string, d digest.Digest, b []byte) error {
	resp, err := f.cas.BatchUpdateBlobs(ctx, &repb.BatchUpdateBlobsRequest{
		InstanceName: instance, Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: b}},
	})
	if err != nil {
		return err
	}
	return status.ErrorProto(resp.GetResponses()[0].GetStatus())
}

// has asks in each way whether an instance name has a blob; all answers have to be the same.
func (f *netFarm) has(t *testing.T, instance string, d digest.Digest) bool {
	t.Helper()
	missing, err := f.cas.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{
		InstanceName: instance, BlobDigests: []*repb.Digest{d.Proto()},
	})
	if err != nil {
		t.Fatal(err)
	}
	has := len(missing.GetMissingBlobDigests()) == 0
	if d.SizeBytes() < BatchBytes {
		batch, err := f.cas.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{
			InstanceName: instance, Digests: []*repb.Digest{d.Proto()},
		})
		if err != nil {
			t.Fatal(err)
		}
		if code := codes.Code(batch.GetResponses()[0].GetStatus().GetCode()); code != wanted(has) {
			t.Errorf("%q has %s: %t, and a batch says %s", instance, d, has, code)
		}
	}
	_, err = f.read(t.Context(), &bytestream.ReadRequest{ResourceName: resource{instance: instance, digest: d}.String()})
	if status.Code(err) != wanted(has) {
		t.Errorf("%q has %s: %t, and a stream says %v", instance, d, has, err)
	}
	if _, complete := f.query(t, resource{instance: instance, uuid: newUUID(), digest: d}.String()); complete != has {
		t.Errorf("%q has %s: %t, and it was uploaded: %t", instance, d, has, complete)
	}
	return has
}

func wanted(has bool) codes.Code {
	if has {
		return codes.OK
	}
	return codes.NotFound
}

// TestIsolationIsAsItsModel has three instance names upload blobs in every way, right ones and wrong ones, in a store
// that has no room for all, which is closed and opened again and again. After each step a model of who has uploaded
// what since it came is asked about one blob.
func TestIsolationIsAsItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	dir := filepath.Join(t.TempDir(), "blobs")
	config := netConfig{dir: dir, store: StoreOptions{MaxBytes: 40 << 10, Isolate: true}}
	f := netStart(t, config)
	instances := []string{"", "a", "a/b"}
	var blobs [24][]byte
	var ds [len(blobs)]digest.Digest
	for i := range blobs {
		blobs[i] = netBytes(uint64(i), 1+random.IntN(5<<10))
		ds[i] = digest.Of(digest.SHA256, blobs[i])
	}
	model := map[digest.Digest]map[string]bool{}
	files := map[digest.Digest]uint64{} // their generations
	look := func() {
		for d := range model {
			generation, _, there := f.store.files.look(d)
			if !there {
				delete(model, d)
			}
			files[d] = generation
		}
	}
	uploaded, had := 0, 0
	for step := range 1500 {
		i, instance := random.IntN(len(blobs)), instances[random.IntN(len(instances))]
		d, b := ds[i], blobs[i]
		var err error
		switch kind := random.IntN(40); {
		case kind == 0:
			if err := f.store.Close(); err != nil {
				t.Fatal(err)
			}
			f = netStart(t, config)
			look()
			continue
		case kind == 1:
			f.store.MakeRoom(1)
			err = status.Error(codes.Canceled, "nothing was uploaded")
		case kind < 8: // who has only the digest
			wrong := bytes.Clone(b)
			wrong[random.IntN(len(wrong))]++
			if err = f.tryUpload(t.Context(), instance, d, wrong); err == nil {
				t.Fatalf("step %d: wrong bytes are taken", step)
			}
		case kind < 20:
			err = f.tryUpload(t.Context(), instance, d, b)
		default:
			half := random.IntN(len(b))
			name := resource{instance: instance, uuid: newUUID(), digest: d}.String()
			_, err = f.write(t, &bytestream.WriteRequest{ResourceName: name, Data: b[:half]},
				&bytestream.WriteRequest{WriteOffset: int64(half), Data: b[half:], FinishWrite: true})
		}
		if generation, _, _ := f.store.files.look(d); generation != files[d] {
			delete(model, d) // evicted, and may be there again since
		}
		if err == nil {
			if model[d] == nil {
				model[d] = map[string]bool{}
			}
			model[d][instance] = true
			uploaded++
		}
		look()
		k, other := random.IntN(len(blobs)), instances[random.IntN(len(instances))]
		got, want := f.has(t, other, ds[k]), model[ds[k]][other]
		if got != want {
			t.Fatalf("step %d: %q has blob %d: %t, want %t", step, other, k, got, want)
		}
		if got {
			had++
		}
	}
	if uploaded < 100 || had < 100 {
		t.Errorf("%d uploads, %d answers that somebody has a blob: this was no test", uploaded, had)
	}
}

// TestForeignUploadIsReceived: what others have is not answered before all of it has come.
func TestForeignUploadIsReceived(t *testing.T) {
	f := netStart(t, netConfig{store: StoreOptions{Isolate: true}})
	b := netBytes(1, 9<<20)
	d := digest.Of(digest.SHA256, b)
	put := func(instance string, b []byte) (int64, error) {
		name := resource{instance: instance, uuid: newUUID(), digest: d}.String()
		var rs []*bytestream.WriteRequest
		for at := 0; at < len(b); at += 1 << 20 {
			end := min(at+1<<20, len(b))
			rs = append(rs, &bytestream.WriteRequest{
				ResourceName: name, WriteOffset: int64(at), Data: b[at:end], FinishWrite: end == len(b),
			})
		}
		return f.write(t, rs...)
	}
	if n, err := put("a", b); err != nil || n != int64(len(b)) {
		t.Fatal(n, err)
	}
	wrong := bytes.Clone(b)
	wrong[len(b)-1]++
	if n, err := put("b", wrong); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an upload whose last byte is wrong: %d, %v", n, err)
	}
	if _, err := put("b", b[:5<<20]); err == nil || f.has(t, "b", d) {
		t.Errorf("half of a blob: %v", err)
	}
	if n, err := put("b", b); err != nil || n != int64(len(b)) || !f.has(t, "b", d) {
		t.Errorf("all of it: %d, %v", n, err)
	}
	if stats := f.store.Stats(); stats.Blobs != 1 || stats.Bytes != d.SizeBytes() {
		t.Errorf("two have a blob, and the store has %d blobs, %d bytes", stats.Blobs, stats.Bytes)
	}
	storeWantConsistent(t, f.store)
}

// TestForeignUploadHeals: what others have and is damaged makes room for what comes.
func TestForeignUploadHeals(t *testing.T) {
	for _, stream := range []bool{false, true} {
		f := netStart(t, netConfig{store: StoreOptions{Isolate: true, VerifyEvery: -1}})
		b := netBytes(1, 5000)
		d := f.upload(t, "a", b)
		path := filepath.Join(f.store.Dir(), filepath.FromSlash(BlobPath(d)))
		if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, len(b)), 0o600)); err != nil {
			t.Fatal(err)
		}
		if stream {
			name := resource{instance: "b", uuid: newUUID(), digest: d}.String()
			if _, err := f.write(t, &bytestream.WriteRequest{ResourceName: name, Data: b, FinishWrite: true}); err != nil {
				t.Fatal(err)
			}
		} else {
			f.upload(t, "b", b)
		}
		if got, err := f.server.ReadBlob(t.Context(), "b", d); err != nil || !bytes.Equal(got, b) {
			t.Errorf("stream %t: %d bytes, %v", stream, len(got), err)
		}
	}
}

// TestPossessionSurvives opens a store that was closed, one that was not, and one whose file of holders is damaged.
func TestPossessionSurvives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, StoreOptions{Isolate: true})
	a, b := holders.NameOf("a"), holders.NameOf("b")
	var ds []digest.Digest
	for i := range 3000 {
		d := storePut(t, s, fmt.Sprint("blob ", i))
		ds = append(ds, d)
		if err := s.possession.gain(d, []holders.Name{a, b}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	s.possession.write()
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count := func(dir string) (had [2]int) {
		t.Helper()
		s := storeOpen(t, dir, StoreOptions{Isolate: true})
		for i, n := range []holders.Name{a, b} {
			has, _ := s.possession.split(ds, n)
			had[i] = len(has)
			for _, d := range has {
				if slices.Index(ds, d)%2 != i {
					t.Fatalf("%s has changed hands", d)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return had
	}
	for range 2 {
		for _, dir := range []string{dir, killed} {
			if got := count(dir); got != [2]int{1500, 1500} {
				t.Errorf("%s: %d", dir, got)
			}
		}
	}
	file := filepath.Join(dir, "holders")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2]++
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := count(dir); got[0]+got[1] == 0 || got[0] >= 1500 || got[1] >= 1500 {
		t.Errorf("with a damaged file %d", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := count(dir); got != [2]int{} {
		t.Errorf("without a file %d", got)
	}
}

// TestPossessionIsWrittenLater: what could not be written is written as soon as that works again.
func TestPossessionIsWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, StoreOptions{Isolate: true})
	a, p := holders.NameOf("a"), s.possession
	first, second := storePut(t, s, "first"), storePut(t, s, "second")
	if err := errors.Join(p.gain(first, a), p.file.Close()); err != nil {
		t.Fatal(err)
	}
	p.write()
	if !p.ailing {
		t.Fatal("nobody has noticed that the file cannot be written")
	}
	if err := p.gain(second, a); err != nil {
		t.Fatal(err)
	}
	p.write()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, dir, StoreOptions{Isolate: true})
	if !s.possession.has(first, a) || !s.possession.has(second, a) {
		t.Error("what was gained before or after the fault is lost")
	}
}

// TestPossessionIsWrittenAnew while it changes.
func TestPossessionIsWrittenAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, StoreOptions{Isolate: true})
	a := holders.NameOf("a")
	blob := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, "blob ", i)) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 4000 {
			if err := errors.Join(s.PutBytes(context.Background(), blob(i), fmt.Append(nil, "blob ", i)), s.possession.gain(blob(i), a)); err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				s.MakeRoom(1)
			}
		}
	}()
	for running := true; running; {
		if err := s.possession.rewrite(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	var want [4000]bool
	for i := range want {
		want[i] = s.possession.has(blob(i), a)
	}
	s.possession.write()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, dir, StoreOptions{Isolate: true})
	for i := range want {
		if got := s.possession.has(blob(i), a); got != want[i] {
			t.Fatalf("blob %d: %t, want %t", i, got, want[i])
		}
	}
}

// TestMissingInputs has an action name inputs that its instance name has never had, in each place.
func TestMissingInputs(t *testing.T) {
	f := netStart(t, netConfig{store: StoreOptions{Isolate: true}})
	message := func(instance string, m *repb.Directory) digest.Digest { return f.upload(t, instance, netRaw(t, m)) }
	directory := func(file digest.Digest, children ...digest.Digest) *repb.Directory {
		m := netDirectory("d", children...)
		m.Files = []*repb.FileNode{{Name: "file", Digest: file.Proto()}}
		return m
	}
	command := f.upload(t, "b", netRaw(t, &repb.Command{Arguments: []string{"cat"}}))
	theirs, ours := f.upload(t, "a", []byte("theirs")), f.upload(t, "b", []byte("ours"))
	nobodys := digest.Of(digest.SHA256, []byte("nobodys"))
	foreign := message("a", directory(theirs, digest.SHA256.Empty()))
	good := message("b", directory(ours, message("b", directory(ours))))
	check := func(root, command digest.Digest) []digest.Digest {
		t.Helper()
		missing, err := f.server.MissingInputs(t.Context(), "b", digest.SHA256, &repb.Action{CommandDigest: command.Proto(), InputRootDigest: root.Proto()})
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
	for range 2 { // what was looked at is not looked at again
		for _, test := range []struct {
			name          string
			root, command digest.Digest
			want          []digest.Digest
		}{
			{"all there", good, command, nil},
			{"nothing in it", digest.SHA256.Empty(), command, nil},
			{"a foreign file", message("b", directory(theirs)), command, []digest.Digest{theirs}},
			{"nobody's file", message("b", directory(nobodys)), command, []digest.Digest{nobodys}},
			{"a foreign file below what is good", message("b", directory(theirs, good)), command, []digest.Digest{theirs}},
			{"a foreign file below", message("b", directory(ours, message("b", directory(theirs)))), command, []digest.Digest{theirs}},
			{"a foreign folder", message("b", directory(ours, foreign)), command, []digest.Digest{foreign}},
			{"a foreign root", foreign, command, []digest.Digest{foreign}},
			{"a foreign command", good, theirs, []digest.Digest{theirs}},
		} {
			if got := check(test.root, test.command); !slices.Equal(got, test.want) {
				t.Errorf("%s: %v is missing, want %v", test.name, got, test.want)
			}
		}
	}
	// What it has had is no secret to it. Whether it is there still, workers find out.
	f.store.MakeRoom(1 << 30)
	if got := check(good, f.upload(t, "b", netRaw(t, &repb.Command{Arguments: []string{"cat"}}))); got != nil {
		t.Errorf("a tree that was evicted: %v", got)
	}
}
