package farm

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/freeport"
)

// noMoreFiles makes this process unable to open files and connections, until restore is called.
func noMoreFiles(t *testing.T) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return restore
}

// storageCalls returns the calls for which embedded storage opens a file. blob exists, action has a
// result, and fresh does not exist.
func storageCalls(a asker, blob, action *repb.Digest, fresh []byte) map[string]func() error {
	unseen := digest.Of(digest.SHA256, fresh).Proto()
	actions := repb.NewActionCacheClient(a.conn)
	return map[string]func() error{
		"Read": func() error {
			s, err := bytestream.NewByteStreamClient(a.conn).Read(a.Context(), &bytestream.ReadRequest{ResourceName: "blobs/" + name(blob)})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"Write": func() error {
			s, err := bytestream.NewByteStreamClient(a.conn).Write(a.Context())
			if err == nil {
				_ = s.Send(&bytestream.WriteRequest{ResourceName: strings.TrimPrefix(a.resource(unseen), "/"), Data: fresh, FinishWrite: true})
				_, err = s.CloseAndRecv()
			}
			return err
		},
		"BatchReadBlobs": func() error {
			r, err := a.cas().BatchReadBlobs(a.Context(), &repb.BatchReadBlobsRequest{Digests: []*repb.Digest{blob}})
			if err == nil {
				err = status.ErrorProto(r.GetResponses()[0].GetStatus())
			}
			return err
		},
		"BatchUpdateBlobs": func() error {
			other := append([]byte("other "), fresh...)
			r, err := a.cas().BatchUpdateBlobs(a.Context(), &repb.BatchUpdateBlobsRequest{
				Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: digest.Of(digest.SHA256, other).Proto(), Data: other}},
			})
			if err == nil {
				err = status.ErrorProto(r.GetResponses()[0].GetStatus())
			}
			return err
		},
		"GetActionResult": func() error {
			_, err := actions.GetActionResult(a.Context(), &repb.GetActionResultRequest{ActionDigest: action})
			return err
		},
		"UpdateActionResult": func() error {
			_, err := actions.UpdateActionResult(a.Context(), &repb.UpdateActionResultRequest{
				ActionDigest: action, ActionResult: &repb.ActionResult{StdoutDigest: blob},
			})
			return err
		},
	}
}

// TestOutOfDescriptors has a scheduler that cannot open another file: clients are told to try again,
// it is not ready, and its storage takes no file for damaged because of that.
func TestOutOfDescriptors(t *testing.T) {
	s := &Scheduler{HTTP: freeport.Address(t), Storage: storage.Settings{CacheWrites: storage.Clients}}
	conn, err := (&dial.Client{}).Dial(startScheduler(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a := asker{T: t, conn: conn}
	blob, action := a.putBytes(bytes.Repeat([]byte("x"), 1<<20)), a.action(nil, nil)
	if answer := a.update(action, &repb.ActionResult{StdoutDigest: blob}); !strings.Contains(answer, blob.GetHash()) {
		t.Fatal(answer)
	}
	becomes(t, s.HTTP, http.StatusOK, "ready") // the connection for pages is open
	restore := noMoreFiles(t)
	calls := storageCalls(a, blob, action, []byte("fresh"))
	for method, call := range calls {
		if err := call(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "too many open files") {
			t.Errorf("%s without descriptors: %v", method, err)
		}
	}
	becomes(t, s.HTTP, http.StatusServiceUnavailable, "too many open files")
	restore()
	for method, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s with descriptors again: %v", method, err)
		}
	}
	becomes(t, s.HTTP, http.StatusOK, "ready")
}
