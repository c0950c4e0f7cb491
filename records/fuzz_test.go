package records

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/rpctest"
)

// callRaw calls a method of the services of a store. Its error must say whether the caller or the
// store is at fault.
func callRaw(t *testing.T, s Hints, method string, request []byte) ([][]byte, codes.Code) {
	t.Helper()
	answers, err := servicesOf(s).Call(t.Context(), method, request)
	code := status.Code(err)
	if errors.Is(err, rpctest.ErrNoMessage) {
		code = codes.InvalidArgument
	} else if err != nil && code != codes.InvalidArgument && code != codes.NotFound {
		t.Fatalf("%s: %v", method, err)
	}
	return answers, code
}

func servicesOf(s Hints) *rpctest.Services {
	services := &rpctest.Services{}
	RegisterFSAC(services, s)
	RegisterISCC(services, s)
	return services
}

const (
	getProfile = "/buildbarn.fsac.FileSystemAccessCache/GetFileSystemAccessProfile"
	getStats   = "/buildbarn.iscc.InitialSizeClassCache/GetPreviousExecutionStats"
)

// FuzzServices stores arbitrary profiles and statistics, in two calls, and reads them.
func FuzzServices(f *testing.F) {
	methods := servicesOf(NewMemory(0)).Methods()
	d := digest.Of(digest.SHA256, []byte("x")).Proto()
	requests := map[string]proto.Message{
		getProfile: &fsac.GetFileSystemAccessProfileRequest{InstanceName: "a", ReducedActionDigest: d},
		getStats:   &iscc.GetPreviousExecutionStatsRequest{InstanceName: "a", ReducedActionDigest: d},
		"/buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile": &fsac.UpdateFileSystemAccessProfileRequest{
			InstanceName: "a", ReducedActionDigest: d,
			FileSystemAccessProfile: &fsac.FileSystemAccessProfile{BloomFilter: []byte{7, 1}, BloomFilterHashFunctions: 3},
		},
		"/buildbarn.iscc.InitialSizeClassCache/UpdatePreviousExecutionStats": &iscc.UpdatePreviousExecutionStatsRequest{
			InstanceName: "a", ReducedActionDigest: d, DigestFunction: repb.DigestFunction_SHA256,
			PreviousExecutionStats: &iscc.PreviousExecutionStats{SizeClasses: map[uint32]*iscc.PerSizeClassStats{4: {}}},
		},
	}
	for method, m := range requests {
		b, err := proto.Marshal(m)
		if err != nil || !slices.Contains(methods, method) {
			f.Fatal(method, err)
		}
		f.Add(byte(slices.Index(methods, method)), b, b[:len(b)/2])
		f.Add(byte(slices.Index(methods, method)), b, b)
	}
	f.Fuzz(func(t *testing.T, method byte, first, second []byte) {
		s := NewMemory(0)
		for _, request := range [][]byte{first, second} {
			name := methods[int(method)%len(methods)]
			_, code := callRaw(t, s, name, request)
			var update fsac.UpdateFileSystemAccessProfileRequest
			if name != "/buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile" || code != codes.OK {
				continue
			}
			// A stored record can be read.
			if err := proto.Unmarshal(request, &update); err != nil {
				t.Fatal(err)
			}
			ask, err := proto.Marshal(&fsac.GetFileSystemAccessProfileRequest{
				InstanceName: update.GetInstanceName(), DigestFunction: update.GetDigestFunction(), ReducedActionDigest: update.GetReducedActionDigest(),
			})
			if err != nil {
				t.Fatal(err)
			}
			answers, code := callRaw(t, s, getProfile, ask)
			var got fsac.FileSystemAccessProfile
			if code != codes.OK || proto.Unmarshal(answers[0], &got) != nil || !proto.Equal(&got, update.GetFileSystemAccessProfile()) {
				t.Errorf("%v came back as %v, code %s", &update, &got, code)
			}
		}
	})
}

// FuzzRecords puts arbitrary bytes into the store. The service returns them as a message or not at
// all.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte("\x0a\x02\x07\x01\x10\x03"), false)
	f.Add([]byte("\x0a\x0a\x08\x01\x12\x06\x0a\x04\x1a\x02\x08\x01"), true)
	f.Add([]byte("\xff"), true)
	f.Fuzz(func(t *testing.T, value []byte, stats bool) {
		s := NewMemory(0)
		d := digest.Of(digest.SHA256, []byte("x"))
		var ask proto.Message = &fsac.GetFileSystemAccessProfileRequest{ReducedActionDigest: d.Proto()}
		bucket, method := names.ProfileBucket, getProfile
		if stats {
			ask = &iscc.GetPreviousExecutionStatsRequest{ReducedActionDigest: d.Proto()}
			bucket, method = names.StatisticsBucket, getStats
		}
		if err := s.Put(t.Context(), Key{Bucket: bucket, Digest: d}, value); err != nil {
			t.Fatal(err)
		}
		request, err := proto.Marshal(ask)
		if err != nil {
			t.Fatal(err)
		}
		callRaw(t, s, method, request)
	})
}

// FuzzTenancy reads an arbitrary lease record.
func FuzzTenancy(f *testing.F) {
	f.Add([]byte(`{"term":7,"holder":"x"}`))
	f.Add([]byte(` null`))
	f.Add([]byte(`{"term":-1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		first := parseTenancy(value)
		written, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if again := parseTenancy(written); again != first {
			t.Errorf("%+v became %+v", first, again)
		}
	})
}
