package farm

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/record"
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
		var s state.Place
		if err := s.Set(written); err != nil || s.String() != shown {
			t.Errorf("%s is shown as %s, %v; want %s", written, &s, err, shown)
		}
	}
	for _, wrong := range []string{"/x/y", "http://h:1", "redis:h:1"} {
		var s state.Place
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
	for _, state := range []state.Place{
		"", state.Place("bolt:" + filepath.Join(t.TempDir(), "elsewhere")), state.Place("redis://" + redistest.Start(t).Addr),
		state.Place("grpc://" + listener.Addr().String()),
	} {
		data := t.TempDir()
		for n := range 2 {
			opened, err := state.Open(data, &dial.Client{}, zap.NewNop())
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
						t.Errorf("%s: %s at first: %v", state, bucket, err)
					}
					err = store.Put(t.Context(), k, nil)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", state, bucket, err)
				}
			}
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	nowhere := state.Place("redis://h")
	if _, err := nowhere.Open(t.TempDir(), &dial.Client{}, zap.NewNop()); err == nil {
		t.Error("an address without a port was opened")
	}
}

// TestStateBehindTLS has a Redis whose certificate nobody but --tls-ca vouches for, and that wants to see
// that of who calls.
func TestStateBehindTLS(t *testing.T) {
	authority := certtest.New(t)
	certificate, key := authority.Server("redis")
	state := state.Place("rediss://" + redistest.StartTLS(t, authority.File, certificate, key))
	own, ownKey := authority.Client("scheduler")
	k := records.Key{Bucket: names.ProfileBucket, Digest: digest.Of(digest.SHA256, nil)}
	for want, client := range map[string]*dial.Client{
		"":                     {CA: authority.File, Cert: own, Key: ownKey},
		"unknown authority":    {Cert: own, Key: ownKey},
		"certificate required": {CA: authority.File},
	} {
		opened, err := state.Open(t.TempDir(), client, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		err = opened.Hints.Put(t.Context(), k, []byte("value"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := state.Open(t.TempDir(), &dial.Client{CA: "/nowhere"}, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "--tls-ca") {
		t.Errorf("an authority that is not there: %v", err)
	}
	s := &Scheduler{Lease: "main", State: state, Storage: "grpc://h:1", Client: dial.Client{CA: "/nowhere"}, Logger: zap.NewNop()}
	if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--tls-ca") {
		t.Errorf("a lease by an authority that is not there: %v", err)
	}
}

// TestStateAway stops and kills a Redis under those who use it: they go on without, and say it
// once when it goes and once when it is back.
func TestStateAway(t *testing.T) {
	server := redistest.Start(t)
	state := state.Place("redis://" + server.Addr)
	opened, err := state.Open(t.TempDir(), &dial.Client{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	core, logs := observer.New(zap.InfoLevel)
	careful := record.NewCareful(opened.Hints, record.CarefulOptions{
		Timeout: 100 * time.Millisecond, Logger: zap.New(core), Subject: "things", Without: "all goes on",
	})
	k := records.Key{Bucket: "things", Digest: digest.Of(digest.SHA256, nil)}
	works := func() bool {
		_, ok := careful.Get(t.Context(), k)
		return ok
	}
	lines := func(want int, last string) {
		t.Helper()
		if all := fmt.Sprint(logs.All()); logs.Len() != want || !strings.Contains(all, last) {
			t.Errorf("%d lines in the log, want %d, the last with %q: %s", logs.Len(), want, last, all)
		}
	}
	redistest.Eventually(t, "it works", works)
	logs.TakeAll()
	for _, outage := range []struct{ begin, end func() }{{server.Pause, server.Resume}, {server.Kill, server.Restart}} {
		outage.begin()
		for range 100 {
			if works() {
				t.Error("a store that is away answers")
			}
		}
		lines(1, "all goes on without it")
		outage.end()
		redistest.Eventually(t, "it is back", works)
		lines(2, "works again")
		logs.TakeAll()
	}
}
