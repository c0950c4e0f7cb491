package historical

import (
	"context"
	"path"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	historicalpb "github.com/forerunner-build/forerunner/proto/historical"
)

const actionHash = "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b2477232534a8aeca37f3c"

// anAction returns the digest of some action.
func anAction(t *testing.T, fn digest.Function) digest.Digest {
	t.Helper()
	d, err := digest.Parse(fn, actionHash, 11)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// failed is the response of some action that failed.
func failed() *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 127, StderrRaw: []byte("Compiler error!")}}
}

func open(t *testing.T, address string) *Browser {
	t.Helper()
	b, err := New(address)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStore stores blobs that are, byte by byte, what Buildbarn's own worker writes.
func TestStore(t *testing.T) {
	storage := servertest.Start(t, servertest.Config{})
	client := casclient.New(storage.Conn, casclient.Options{InstanceName: "freebsd12"})
	b := open(t, "https://example.com/some/sub/directory")
	for blob, response := range map[string]*repb.ExecuteResponse{
		"bb1107706f3aa379d68aa61062f56d99d24a667ec18d5756fb6df1ba9baa1fdc-93": failed(),
		"5ed2d5720b99f5575542bb4f89e84b5e00e34ab652292974fdb814ab7dc3c92e-89": {
			Result: &repb.ActionResult{StdoutRaw: []byte("Hello, world!")},
		},
		"a6e4f00dd21540b0b653dcd195b3d54ea4c0b3ca679cf6a69eb7b0dbd378c2cc-126": {
			Result: &repb.ActionResult{StdoutRaw: []byte("Compiling...")},
			Status: &statuspb.Status{Code: int32(codes.DeadlineExceeded), Message: "Build took more than ten seconds"},
		},
	} {
		before := proto.CloneOf(response)
		message, err := b.Store(t.Context(), client, anAction(t, digest.SHA256), response)
		want := "Action details (uncached result): " +
			"https://example.com/some/sub/directory/freebsd12/blobs/sha256/historical_execute_response/" + blob + "/"
		if err != nil || message != want {
			t.Fatalf("%q, %v; want %q", message, err, want)
		}
		if !proto.Equal(response, before) {
			t.Errorf("the response is now %v", response)
		}
		raw, err := storage.Read(t.Context(), "freebsd12/blobs/"+strings.Replace(blob, "-", "/", 1))
		if err != nil {
			t.Fatal(err)
		}
		stored := &historicalpb.HistoricalExecuteResponse{}
		if err := proto.Unmarshal(raw, stored); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(stored.GetExecuteResponse(), response) || stored.GetActionDigest().GetHash() != actionHash {
			t.Errorf("stored is %v", stored)
		}
	}
}

// TestLinks checks the path of a link: instance names as the storage knows them, and digest
// functions.
func TestLinks(t *testing.T) {
	storage := servertest.Start(t, servertest.Config{})
	for _, c := range []struct {
		address, prefix, instance string
		fn                        digest.Function
		want                      string
	}{
		{"http://h:7984", "", "", digest.SHA256, "http://h:7984/blobs/sha256/"},
		{"http://h:7984/", "", "fuse", digest.SHA256, "http://h:7984/fuse/blobs/sha256/"},
		{"http://h/a%20b/", "main", "eu/x y", digest.BLAKE3, "http://h/a%20b/main/eu/x%20y/blobs/blake3/"},
		{"https://h", "main", "", digest.BLAKE3, "https://h/main/blobs/blake3/"},
	} {
		client := casclient.New(storage.Conn, casclient.Options{InstancePrefix: c.prefix}).WithInstance(c.instance, c.fn)
		message, err := open(t, c.address).Store(t.Context(), client, anAction(t, c.fn), failed())
		if err != nil || !strings.HasPrefix(message, "Action details (uncached result): "+c.want+"historical_execute_response/") {
			t.Errorf("%+v: %q, %v", c, message, err)
		}
	}
}

// TestMessageIsKept has a response with a message of its own: pages want the link to be first.
func TestMessageIsKept(t *testing.T) {
	storage := servertest.Start(t, servertest.Config{})
	response := failed()
	response.Message = "command was ended by signal KILL"
	message, err := open(t, "http://h").Store(t.Context(), casclient.New(storage.Conn, casclient.Options{}),
		anAction(t, digest.SHA256), response)
	link, rest, _ := strings.Cut(message, "\n")
	if err != nil || !strings.HasPrefix(link, "Action details") || rest != response.GetMessage() {
		t.Errorf("%q, %v", message, err)
	}
}

// TestNothingIsStored has cases that end without a link, and soon.
func TestNothingIsStored(t *testing.T) {
	never := func(ctx context.Context, r any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		if path.Base(info.FullMethod) == "FindMissingBlobs" {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return call(ctx, r)
	}
	refused := func(ctx context.Context, r any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		if path.Base(info.FullMethod) == "BatchUpdateBlobs" {
			return nil, status.Error(codes.PermissionDenied, "you may not write")
		}
		return call(ctx, r)
	}
	large := failed()
	large.Result.StderrRaw = make([]byte, maxBytes)
	for name, c := range map[string]struct {
		unary    grpc.UnaryServerInterceptor
		patience time.Duration
		response *repb.ExecuteResponse
		want     string
	}{
		"too large": {nil, time.Minute, large, "of which pages read at most 2097152"},
		"hangs":     {never, 100 * time.Millisecond, failed(), context.DeadlineExceeded.Error()},
		"refused":   {refused, time.Minute, failed(), "you may not write"},
	} {
		t.Run(name, func(t *testing.T) {
			storage := servertest.Start(t, servertest.Config{Unary: c.unary})
			b := open(t, "http://h")
			b.patience = c.patience
			message, err := b.Store(t.Context(), casclient.New(storage.Conn, casclient.Options{}), anAction(t, digest.SHA256), c.response)
			if message != "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v; want an error with %q", message, err, c.want)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{
		"", "browser.example.com", "//h", "ftp://h", "http://", "http:///path", "http://h/?a=b", "http://h/?", "http://h/#a",
		"http://user:secret@h", "http://h:x", "http://[::1", "javascript:alert(1)",
	} {
		if b, err := New(address); err == nil {
			t.Errorf("%q: %+v", address, b)
		}
	}
}
