package records

import (
	"errors"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/rpctest"
)

// isccServer serves s and returns a connection to it.
func isccServer(t *testing.T, s Hints) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer()
	RegisterISCC(server, s)
	return rpctest.Serve(t, server)
}

// The wire format, written by hand as in fsacGet. The statistics of size class 4 are: failed, timed
// out after 10 s, succeeded in 1.5 s; the time of the last failure follows.
const (
	isccGet    = "/buildbarn.iscc.InitialSizeClassCache/GetPreviousExecutionStats"
	isccUpdate = "/buildbarn.iscc.InitialSizeClassCache/UpdatePreviousExecutionStats"

	isccRuns = "\x0a\x02\x0a\x00" + "\x0a\x04\x12\x02\x08\x0a" +
		"\x0a\x0a\x1a\x08\x08\x01\x10\x80\xca\xb5\xee\x01" + "\x19\x00\x00\x00\x00\x00\x00\xe0\x3f"
	isccStats   = "\x0a\x23\x08\x04\x12\x1f" + isccRuns + "\x12\x06\x08\x80\xe2\xcf\xaa\x06"
	isccStrange = "\xc2\x3e\x02hi" // field 1000: "hi"
	isccKey     = "\x0a\x03a/b" + "\x12\x45" + "\x0a\x40" + fsacHash + "\x10\x96\x01"
	isccLookUp  = isccKey + "\x18\x09"
	isccSet     = isccKey + "\x1a\x32" + isccStats + isccStrange + "\x20\x09"
)

func isccRecord(t *testing.T) Key {
	k := fsacRecord(t)
	k.Bucket = names.StatisticsBucket
	return k
}

func TestISCCServerValidates(t *testing.T) {
	client := iscc.NewInitialSizeClassCacheClient(isccServer(t, NewMemory(0)))
	type request = iscc.UpdatePreviousExecutionStatsRequest
	for name, c := range map[string]struct {
		change func(r *request)
		want   string
	}{
		"no digest":     {func(r *request) { r.ReducedActionDigest = nil }, "reduced_action_digest: "},
		"bad digest":    {func(r *request) { r.ReducedActionDigest.Hash = "../x" }, "reduced_action_digest: "},
		"MD5":           {func(r *request) { r.DigestFunction = repb.DigestFunction_MD5 }, "digest_function: "},
		"long instance": {func(r *request) { r.InstanceName = strings.Repeat("a", 1025) }, "instance name has 1025 bytes"},
		"no statistics": {func(r *request) { r.PreviousExecutionStats = nil }, "previous_execution_stats is not set"},
	} {
		r := &request{
			InstanceName: "a", ReducedActionDigest: testKey(1).Digest.Proto(),
			PreviousExecutionStats: &iscc.PreviousExecutionStats{},
		}
		c.change(r)
		_, err := client.UpdatePreviousExecutionStats(t.Context(), r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: update: %v, want %q", name, err, c.want)
		}
		if name == "no statistics" {
			continue
		}
		_, err = client.GetPreviousExecutionStats(t.Context(), &iscc.GetPreviousExecutionStatsRequest{
			InstanceName: r.InstanceName, DigestFunction: r.DigestFunction, ReducedActionDigest: r.ReducedActionDigest,
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: get: %v, want %q", name, err, c.want)
		}
	}
}

func TestISCCIgnoresWhatIsNoStatistics(t *testing.T) {
	store := NewMemory(0)
	k := testKey(1)
	k.Bucket = names.StatisticsBucket
	put(t, store, k, []byte("\x0a\x7fshort"))
	s := NewISCC(isccServer(t, store), ISCCOptions{})
	expect(t, s, k, nil)
	if err := s.Put(t.Context(), k, []byte("\x0a\x7fshort")); !errors.Is(err, ErrInvalid) {
		t.Errorf("put of a value that is not statistics: %v", err)
	}
	if err := s.Put(t.Context(), testKey(1), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("put into another bucket: %v", err)
	}
	put(t, s, k, []byte(isccStats))
	expect(t, s, k, []byte(isccStats))
}

func TestISCCSaysThatTheServiceIsAway(t *testing.T) {
	k := testKey(1)
	k.Bucket = names.StatisticsBucket
	s := NewISCC(isccServer(t, failingStore{hang: true}), ISCCOptions{Timeout: 20 * time.Millisecond})
	if _, err := s.Get(t.Context(), k); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("get: %v", err)
	}
	if err := s.Put(t.Context(), k, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("put: %v", err)
	}
}
