package farm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/redistest"
)

// TestStateBehindTLS has a Redis whose certificate only --tls-ca verifies, and that requires client
// certificates.
func TestStateBehindTLS(t *testing.T) {
	authority := certtest.New(t)
	certificate, key := authority.Server("redis")
	state := state.Location("rediss://" + redistest.StartTLS(t, authority.File, certificate, key))
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
	s := &Scheduler{Listen: "127.0.0.1:0", Lease: "main", State: state, Storage: storage.Settings{Location: "grpc://h:1"}, Client: dial.Client{CA: "/nowhere"}, Logger: zap.NewNop()}
	if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--tls-ca") {
		t.Errorf("a lease by an authority that is not there: %v", err)
	}
}

// TestStateAway stops and kills a Redis that programs use. They must continue without it, and log
// once when it fails and once when it is back.
func TestStateAway(t *testing.T) {
	server := redistest.Start(t)
	state := state.Location("redis://" + server.Addr)
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
		lines(1, "until it works again, all goes on")
		outage.end()
		redistest.Eventually(t, "it is back", works)
		lines(2, "works again")
		logs.TakeAll()
	}
}
