package records

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/rpctest"
)

// fsacServer serves s and returns a connection to it.
func fsacServer(t *testing.T, s Hints) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer()
	RegisterFSAC(server, s)
	return rpctest.Serve(t, server)
}

// A rawCodec passes messages as encoded bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (rawCodec) Name() string                    { return "proto" }

// The wire format, written by hand: each field's number and type, its length, and its bytes.
const (
	fsacGet    = "/buildbarn.fsac.FileSystemAccessCache/GetFileSystemAccessProfile"
	fsacUpdate = "/buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile"

	fsacHash    = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	fsacProfile = "\x0a\x03\x5a\xa5\x01" + "\x10\x0a"
	fsacStrange = "\xc2\x3e\x02hi" // field 1000: "hi"
	fsacKey     = "\x0a\x03a/b" + "\x10\x09" + "\x1a\x45" + "\x0a\x40" + fsacHash + "\x10\x96\x01"
	fsacSet     = fsacKey + "\x22\x0c" + fsacProfile + fsacStrange
)

// fsacRecord returns the key that fsacKey encodes.
func fsacRecord(t *testing.T) Key {
	t.Helper()
	d, err := digest.Parse(digest.BLAKE3, fsacHash, 150)
	if err != nil {
		t.Fatal(err)
	}
	return Key{Bucket: names.ProfileBucket, Instance: "a/b", Digest: d}
}

func TestFSACServerValidates(t *testing.T) {
	store := NewMemory(0)
	client := fsac.NewFileSystemAccessCacheClient(fsacServer(t, store))
	good := func() *fsac.UpdateFileSystemAccessProfileRequest {
		return &fsac.UpdateFileSystemAccessProfileRequest{
			InstanceName:            "a",
			ReducedActionDigest:     testKey(1).Digest.Proto(),
			FileSystemAccessProfile: &fsac.FileSystemAccessProfile{BloomFilter: make([]byte, MaxValueBytes-4)},
		}
	}
	for name, c := range map[string]struct {
		change func(r *fsac.UpdateFileSystemAccessProfileRequest)
		want   string // part of the message; empty: no error
	}{
		"largest filter": {func(*fsac.UpdateFileSystemAccessProfileRequest) {}, ""},
		"large filter": {func(r *fsac.UpdateFileSystemAccessProfileRequest) {
			r.FileSystemAccessProfile.BloomFilter = make([]byte, MaxValueBytes)
		}, "the maximum is 1048576"},
		"no profile":      {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.FileSystemAccessProfile = nil }, "file_system_access_profile is not set"},
		"no digest":       {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.ReducedActionDigest = nil }, "reduced_action_digest: invalid digest: digest is not set"},
		"bad digest":      {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.ReducedActionDigest.Hash = "../x" }, "reduced_action_digest: invalid digest"},
		"negative size":   {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.ReducedActionDigest.SizeBytes = -1 }, "reduced_action_digest: invalid digest"},
		"MD5":             {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.DigestFunction = repb.DigestFunction_MD5 }, "digest_function: "},
		"long instance":   {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.InstanceName = strings.Repeat("a", 1025) }, "instance name has 1025 bytes"},
		"many more bytes": {func(r *fsac.UpdateFileSystemAccessProfileRequest) { r.InstanceName = strings.Repeat("a", 100000) }, "instance name has 100000 bytes"},
	} {
		r := good()
		c.change(r)
		_, err := client.UpdateFileSystemAccessProfile(t.Context(), r)
		if c.want == "" && err == nil {
			continue
		}
		if status.Code(err) != codes.InvalidArgument || c.want == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: update: %v, want %q", name, err, c.want)
		}
		if name == "no profile" || name == "large filter" {
			continue
		}
		_, err = client.GetFileSystemAccessProfile(t.Context(), &fsac.GetFileSystemAccessProfileRequest{
			InstanceName: r.InstanceName, DigestFunction: r.DigestFunction, ReducedActionDigest: r.ReducedActionDigest,
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: get: %v, want %q", name, err, c.want)
		}
	}
}

func TestFSACServerIgnoresWhatIsNoProfile(t *testing.T) {
	store := NewMemory(0)
	put(t, store, testKey(1), []byte("\x0a\x7fshort"))
	s := NewFSAC(fsacServer(t, store), FSACOptions{})
	expect(t, s, testKey(1), nil)
	if err := s.Put(t.Context(), testKey(1), []byte("\x0a\x7fshort")); !errors.Is(err, ErrInvalid) {
		t.Errorf("put of a value that is not a profile: %v", err)
	}
	put(t, s, testKey(1), testValue(1, 10))
	expect(t, s, testKey(1), testValue(1, 10))
}

func TestFSACKeepsSomeBucketsOnly(t *testing.T) {
	conn, coarse := fsacServer(t, NewMemory(0)), testKey(1)
	coarse.Bucket = "coarse"
	s := NewFSAC(conn, FSACOptions{})
	if err := s.Put(t.Context(), coarse, testValue(1, 10)); !errors.Is(err, ErrInvalid) {
		t.Errorf("put into an unknown bucket: %v", err)
	}
	both := NewFSAC(conn, FSACOptions{Buckets: []string{names.ProfileBucket, "coarse"}})
	put(t, both, coarse, testValue(1, 10))
	expect(t, both, coarse, testValue(1, 10))
	expect(t, s, coarse, nil)
}

// failingStore is a Hints that always fails or hangs.
type failingStore struct{ hang bool }

func (s failingStore) Get(ctx context.Context, _ Key) ([]byte, error) {
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, io.ErrUnexpectedEOF
}

func (s failingStore) Put(ctx context.Context, k Key, _ []byte) error {
	_, err := s.Get(ctx, k)
	return err
}

func TestFSACSaysThatTheServiceIsAway(t *testing.T) {
	closed := fsacServer(t, NewMemory(0))
	_ = closed.Close()
	empty := rpctest.Serve(t, grpc.NewServer())
	for name, c := range map[string]struct {
		conn *grpc.ClientConn
		want codes.Code
	}{
		"fails":             {fsacServer(t, failingStore{}), codes.Unavailable},
		"hangs":             {fsacServer(t, failingStore{hang: true}), codes.DeadlineExceeded},
		"closed":            {closed, codes.Canceled},
		"has no such thing": {empty, codes.Unimplemented},
	} {
		timeout := 2 * time.Minute
		if name == "hangs" {
			timeout = 50 * time.Millisecond
		}
		s := NewFSAC(c.conn, FSACOptions{Timeout: timeout})
		_, err := s.Get(t.Context(), testKey(1))
		for operation, err := range map[string]error{"get": err, "put": s.Put(t.Context(), testKey(1), nil)} {
			if status.Code(err) != c.want || errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %s: %v, want %s", name, operation, err, c.want)
			}
		}
	}
}

// largeFilters has a profile under every key that exceeds this package's limit.
type largeFilters struct {
	fsac.UnimplementedFileSystemAccessCacheServer
}

func (largeFilters) GetFileSystemAccessProfile(
	context.Context, *fsac.GetFileSystemAccessProfileRequest,
) (*fsac.FileSystemAccessProfile, error) {
	return &fsac.FileSystemAccessProfile{BloomFilter: make([]byte, 2*MaxValueBytes)}, nil
}

// TestFSACOfOthers reads large profiles of Buildbarn's workers, which have another limit. Storing
// such a profile again fails as an error of that record.
func TestFSACOfOthers(t *testing.T) {
	server := grpc.NewServer()
	fsac.RegisterFileSystemAccessCacheServer(server, largeFilters{})
	s := NewFSAC(rpctest.Serve(t, server), FSACOptions{Timeout: time.Minute})
	value, err := s.Get(t.Context(), fsacRecord(t))
	if err != nil || len(value) < 2*MaxValueBytes {
		t.Fatalf("%d bytes, %v", len(value), err)
	}
	if err := s.Put(t.Context(), fsacRecord(t), value); !errors.Is(err, ErrInvalid) {
		t.Errorf("put: %v", err)
	}
}
