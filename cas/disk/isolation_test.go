package disk_test

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
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

func raw(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// upload uploads b for an instance name.
func upload(t *testing.T, f *servertest.Farm, instance string, b []byte) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, b)
	if err := tryUpload(t.Context(), f, instance, d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

// tryUpload says that b is d.
func tryUpload(ctx context.Context, f *servertest.Farm, instance string, d digest.Digest, b []byte) error {
	resp, err := f.Blobs.BatchUpdateBlobs(ctx, &repb.BatchUpdateBlobsRequest{
		InstanceName: instance, Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: b}},
	})
	if err != nil {
		return err
	}
	return status.ErrorProto(resp.GetResponses()[0].GetStatus())
}

// has asks in each way whether an instance name has a blob; all answers have to be the same.
func has(t *testing.T, f *servertest.Farm, instance string, d digest.Digest) bool {
	t.Helper()
	missing, err := f.Blobs.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{
		InstanceName: instance, BlobDigests: []*repb.Digest{d.Proto()},
	})
	if err != nil {
		t.Fatal(err)
	}
	has := len(missing.GetMissingBlobDigests()) == 0
	if d.SizeBytes() < cas.BatchBytes {
		batch, err := f.Blobs.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{
			InstanceName: instance, Digests: []*repb.Digest{d.Proto()},
		})
		if err != nil {
			t.Fatal(err)
		}
		if code := codes.Code(batch.GetResponses()[0].GetStatus().GetCode()); code != wanted(has) {
			t.Errorf("%q has %s: %t, and a batch says %s", instance, d, has, code)
		}
	}
	_, err = f.Read(t.Context(), wire.Resource{Instance: instance, Digest: d}.String())
	if status.Code(err) != wanted(has) {
		t.Errorf("%q has %s: %t, and a stream says %v", instance, d, has, err)
	}
	r, err := f.Streams.QueryWriteStatus(t.Context(), &bytestream.QueryWriteStatusRequest{
		ResourceName: wire.Resource{Instance: instance, UUID: wire.NewUUID(), Digest: d}.String(),
	})
	if err != nil || r.GetComplete() != has {
		t.Errorf("%q has %s: %t, and it was uploaded: %v, %v", instance, d, has, r, err)
	}
	return has
}

func wanted(has bool) codes.Code {
	if has {
		return codes.OK
	}
	return codes.NotFound
}

// TestIsolationIsAsItsModel has three instance names upload blobs in every way, correct and wrong
// ones, to a store that is too small for all and is reopened again and again. After each step it
// compares one blob with a model of who has uploaded which blobs.
func TestIsolationIsAsItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	dir := filepath.Join(t.TempDir(), "blobs")
	config := servertest.Config{Dir: dir, Store: disk.Options{MaxBytes: 40 << 10, Isolate: true}}
	f := servertest.Start(t, config)
	instances := []string{"", "a", "a/b"}
	var blobs [24][]byte
	var ds [len(blobs)]digest.Digest
	for i := range blobs {
		blobs[i] = servertest.Bytes(uint64(i), 1+random.IntN(5<<10))
		ds[i] = digest.Of(digest.SHA256, blobs[i])
	}
	model := map[digest.Digest]map[string]bool{}
	files := map[digest.Digest]uint64{} // their generations
	look := func() {
		for d := range model {
			generation, there := disk.Generation(f.Store, d)
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
			if err := f.Store.Close(); err != nil {
				t.Fatal(err)
			}
			f = servertest.Start(t, config)
			look()
			continue
		case kind == 1:
			f.Store.Evict(1)
			err = status.Error(codes.Canceled, "nothing was uploaded")
		case kind < 8: // an instance name that has only the digest
			wrong := bytes.Clone(b)
			wrong[random.IntN(len(wrong))]++
			if err = tryUpload(t.Context(), f, instance, d, wrong); err == nil {
				t.Fatalf("step %d: wrong bytes are taken", step)
			}
		case kind < 20:
			err = tryUpload(t.Context(), f, instance, d, b)
		default:
			half := random.IntN(len(b))
			name := wire.Resource{Instance: instance, UUID: wire.NewUUID(), Digest: d}.String()
			_, err = f.Write(t.Context(), &bytestream.WriteRequest{ResourceName: name, Data: b[:half]},
				&bytestream.WriteRequest{WriteOffset: int64(half), Data: b[half:], FinishWrite: true})
		}
		if generation, _ := disk.Generation(f.Store, d); generation != files[d] {
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
		got, want := has(t, f, other, ds[k]), model[ds[k]][other]
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

// TestForeignUploadIsReceived: an upload of a blob that another instance name has is not answered
// before all its bytes have arrived.
func TestForeignUploadIsReceived(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Store: disk.Options{Isolate: true}})
	b := servertest.Bytes(1, 9<<20)
	d := digest.Of(digest.SHA256, b)
	put := func(instance string, b []byte) (int64, error) {
		name := wire.Resource{Instance: instance, UUID: wire.NewUUID(), Digest: d}.String()
		var rs []*bytestream.WriteRequest
		for at := 0; at < len(b); at += 1 << 20 {
			end := min(at+1<<20, len(b))
			rs = append(rs, &bytestream.WriteRequest{
				ResourceName: name, WriteOffset: int64(at), Data: b[at:end], FinishWrite: end == len(b),
			})
		}
		return f.Write(t.Context(), rs...)
	}
	if n, err := put("a", b); err != nil || n != int64(len(b)) {
		t.Fatal(n, err)
	}
	wrong := bytes.Clone(b)
	wrong[len(b)-1]++
	if n, err := put("b", wrong); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an upload whose last byte is wrong: %d, %v", n, err)
	}
	if _, err := put("b", b[:5<<20]); err == nil || has(t, f, "b", d) {
		t.Errorf("half of a blob: %v", err)
	}
	if n, err := put("b", b); err != nil || n != int64(len(b)) || !has(t, f, "b", d) {
		t.Errorf("all of it: %d, %v", n, err)
	}
	if stats := f.Store.Stats(); stats.Blobs != 1 || stats.Bytes != d.SizeBytes() {
		t.Errorf("two have a blob, and the store has %d blobs, %d bytes", stats.Blobs, stats.Bytes)
	}
	disk.WantConsistent(t, f.Store)
}

// TestForeignUploadHeals: a damaged blob of another instance name is replaced by the upload.
func TestForeignUploadHeals(t *testing.T) {
	for _, stream := range []bool{false, true} {
		f := servertest.Start(t, servertest.Config{Store: disk.Options{Isolate: true, VerifyEvery: -1}})
		b := servertest.Bytes(1, 5000)
		d := upload(t, f, "a", b)
		path := filepath.Join(f.Store.Dir(), filepath.FromSlash(disk.BlobPath(d)))
		if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, len(b)), 0o600)); err != nil {
			t.Fatal(err)
		}
		if stream {
			name := wire.Resource{Instance: "b", UUID: wire.NewUUID(), Digest: d}.String()
			if _, err := f.Write(t.Context(), &bytestream.WriteRequest{ResourceName: name, Data: b, FinishWrite: true}); err != nil {
				t.Fatal(err)
			}
		} else {
			upload(t, f, "b", b)
		}
		if got, err := f.Server.ReadBlob(t.Context(), "b", d); err != nil || !bytes.Equal(got, b) {
			t.Errorf("stream %t: %d bytes, %v", stream, len(got), err)
		}
	}
}

// TestMissingInputs has an action name inputs that its instance name has never had, in each place.
func TestMissingInputs(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Store: disk.Options{Isolate: true}})
	message := func(instance string, m *repb.Directory) digest.Digest { return upload(t, f, instance, raw(t, m)) }
	directory := func(file digest.Digest, children ...digest.Digest) *repb.Directory {
		m := &repb.Directory{}
		for i, child := range children {
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprint("d", i), Digest: child.Proto()})
		}
		m.Files = []*repb.FileNode{{Name: "file", Digest: file.Proto()}}
		return m
	}
	command := upload(t, f, "b", raw(t, &repb.Command{Arguments: []string{"cat"}}))
	theirs, ours := upload(t, f, "a", []byte("theirs")), upload(t, f, "b", []byte("ours"))
	nobodys := digest.Of(digest.SHA256, []byte("nobodys"))
	foreign := message("a", directory(theirs, digest.SHA256.Empty()))
	good := message("b", directory(ours, message("b", directory(ours))))
	check := func(root, command digest.Digest) []digest.Digest {
		t.Helper()
		missing, err := f.Server.MissingInputs(t.Context(), "b", digest.SHA256, &repb.Action{CommandDigest: command.Proto(), InputRootDigest: root.Proto()})
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
	for range 2 { // a checked blob is not checked again
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
	// An instance name may know which blobs it has had. Workers find out whether they still exist.
	f.Store.Evict(1 << 30)
	if got := check(good, upload(t, f, "b", raw(t, &repb.Command{Arguments: []string{"cat"}}))); got != nil {
		t.Errorf("a tree that was evicted: %v", got)
	}
}
