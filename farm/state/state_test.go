package state

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/redistest"
)

func TestStateFlag(t *testing.T) {
	for written, shown := range map[string]string{
		"":                         "",
		"bolt:/x/y":                "bolt:/x/y",
		"grpc://h:1":               "grpc://h:1",
		"grpcs://h:1":              "grpcs://h:1",
		"redis://user:secret@h:1/": "redis://user:xxxxx@h:1/",
		"redis+sentinel://h:1?master_name=m&sentinel_password=secret": "redis+sentinel://h:1?master_name=m&sentinel_password=xxxxx",
		"redis://user:se cret@h:1:2":                                  "redis://...",
	} {
		var s Location
		if err := s.Set(written); err != nil || s.String() != shown {
			t.Errorf("%s is shown as %s, %v; want %s", written, &s, err, shown)
		}
	}
	for _, wrong := range []string{"/x/y", "http://h:1", "redis:h:1"} {
		var s Location
		if s.Set(wrong) == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

// TestStates has records written by one program and read by another, or by the same one later.
func TestStates(t *testing.T) {
	services := grpc.NewServer()
	kept := records.NewMemory(0)
	records.RegisterFSAC(services, kept)
	records.RegisterISCC(services, kept)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- services.Serve(listener) }()
	defer func() {
		services.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for _, place := range []Location{
		"", Location("bolt:" + filepath.Join(t.TempDir(), "elsewhere")), Location("redis://" + redistest.Start(t).Addr),
		Location("grpc://" + listener.Addr().String()),
	} {
		data := t.TempDir()
		for n := range 2 {
			opened, err := place.Open(data, &dial.Client{}, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			store := opened.Hints
			for _, bucket := range []string{
				names.ProfileBucket, names.CoarseBucket, names.StatisticsBucket, names.RunsBucket,
			} {
				// The services do not know of buckets.
				k := records.Key{Bucket: bucket, Digest: digest.Of(digest.SHA256, []byte(bucket))}
				_, err := store.Get(t.Context(), k)
				if n == 0 {
					if !errors.Is(err, records.ErrNotFound) {
						t.Errorf("%s: %s at first: %v", place, bucket, err)
					}
					err = store.Put(t.Context(), k, nil)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", place, bucket, err)
				}
			}
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	nowhere := Location("redis://h")
	if _, err := nowhere.Open(t.TempDir(), &dial.Client{}, zap.NewNop()); err == nil {
		t.Error("an address without a port was opened")
	}
}
