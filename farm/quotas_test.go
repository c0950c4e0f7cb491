package farm

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/kv/redistest"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

func quotaRecord(cohort, instance string, low, high int64) core.QuotaRecord {
	return core.QuotaRecord{
		QuotaKey: core.QuotaKey{Cohort: cohort, Instance: instance}, Quota: quota.Quota{Min: low, Max: high},
	}
}

// TestQuotasAreKept changes quotas and opens the file anew.
func TestQuotasAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	open := func() (quotaFile, func() error) {
		file, err := kv.OpenBolt(path, kv.BoltOptions{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return quotaFile{file}, file.Close
	}
	f, closeFile := open()
	if list, err := f.load(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v of nothing", list, err)
	}
	for _, r := range []core.QuotaRecord{
		quotaRecord("c", "a", 1, 0), quotaRecord("d", "a", 0, 2), quotaRecord("c", "b", 3, 3),
		quotaRecord("c", "a", 5, 6), quotaRecord("c", "b", 0, 0), quotaRecord("c", "unknown", 0, 0),
	} {
		if err := f.keep(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := closeFile(); err != nil {
		t.Fatal(err)
	}
	f, closeFile = open()
	got, err := f.load(t.Context())
	want := []core.QuotaRecord{quotaRecord("d", "a", 0, 2), quotaRecord("c", "a", 5, 6)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if err := closeFile(); err != nil {
		t.Error(err)
	}
}

// TestQuotasWithoutAFile has a scheduler whose records cannot be opened, and who says so of quotas that he is given.
func TestQuotasWithoutAFile(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil { // where services have a folder
		t.Fatal(err)
	}
	for _, state := range []State{State("bolt:" + folder), "grpc://127.0.0.1:1"} {
		records, closeRecords, err := state.open(filepath.Join(folder, "file"), &dial.Client{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if err := (quotaFile{records}).keep(t.Context(), quotaRecord("c", "a", 1, 0)); err == nil {
			t.Errorf("%s: a quota is taken for durable", state)
		}
		if err := closeRecords(); err != nil {
			t.Error(err)
		}
	}
}

// TestQuotasOfSeveralSchedulers has two change quotas in the same store at a time: nothing is lost.
func TestQuotasOfSeveralSchedulers(t *testing.T) {
	store := kv.NewMemory(0)
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i, instance := range []string{"a", "b"} {
		group.Go(func() {
			for n := range int64(20) {
				errs[i] = errors.Join(errs[i], quotaFile{store}.keep(t.Context(), quotaRecord("c", instance, n+1, 0)))
			}
		})
	}
	group.Wait()
	list, err := quotaFile{store}.load(t.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Min != 20 {
			t.Errorf("%v is not the last", r)
		}
	}
	if len(list) != 2 {
		t.Errorf("%v", list)
	}
}

// TestSchedulerStartsWithoutQuotas has a Redis that is away when a scheduler begins. That has the quotas when it is
// back, but for a record that nobody can have written.
func TestSchedulerStartsWithoutQuotas(t *testing.T) {
	redis := redistest.Start(t)
	state := State("redis://" + redis.Addr)
	cohorts := writeConfig(t, "labels: {a: {pool: a}}\ncohorts: {farm: {labels: [a], unit: slots}}\n")
	redis.Kill()
	startTurns(t, Scheduler{State: state, CacheSize: "10M"}).serves()
	f := startTurns(t, Scheduler{State: state, CacheSize: "10M", ConfigFile: cohorts})
	conn, err := dial.Dial(f.serves())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n := f.logs.FilterMessage("quotas cannot be read; none is in force until they can").Len(); n != 1 {
		t.Errorf("it is said %d times that quotas cannot be read", n)
	}
	redis.Restart()
	records, err := kv.OpenRedis(string(state), kv.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	quotas := quotaFile{records}
	if err := quotas.keep(t.Context(), quotaRecord("farm", "team", 1, 2)); err != nil {
		t.Fatal(err)
	}
	f.says(1, "quota was changed elsewhere")
	if q := (&term{T: t, conn: conn}).quota(); q.GetMin() != 1 || q.GetMax() != 2 {
		t.Errorf("the quota is %v", q)
	}
	if err := records.Put(t.Context(), quotas.key(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := startTurns(t, Scheduler{State: state, CacheSize: "10M", ConfigFile: cohorts}).ends(); err == nil {
		t.Error("quotas that nobody can have written are taken")
	}
}
