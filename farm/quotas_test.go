package farm

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/redistest"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

func quotaRecord(cohort, instance string, low, high int64) quota.Record {
	return quota.Record{
		Key: quota.Key{Cohort: cohort, Instance: instance}, Quota: quota.Quota{Min: low, Max: high},
	}
}

// TestQuotasAreKept changes quotas and reads them again.
func TestQuotasAreKept(t *testing.T) {
	s := &Scheduler{Data: filepath.Join(t.TempDir(), "new")}
	_, f := s.durable(nil)
	if list, err := f.Load(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v of nothing", list, err)
	}
	for _, r := range []quota.Record{
		quotaRecord("c", "a", 1, 0), quotaRecord("d", "a", 0, 2), quotaRecord("c", "b", 3, 3),
		quotaRecord("c", "a", 5, 6), quotaRecord("c", "b", 0, 0), quotaRecord("c", "unknown", 0, 0),
	} {
		if err := f.Keep(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	_, f = s.durable(nil)
	got, err := f.Load(t.Context())
	want := []quota.Record{quotaRecord("d", "a", 0, 2), quotaRecord("c", "a", 5, 6)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// TestQuotasWithoutAFile has a scheduler that cannot write to its folder, and that says so of
// quotas that it is given.
func TestQuotasWithoutAFile(t *testing.T) {
	data := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, quotas := (&Scheduler{Data: data}).durable(nil)
	if err := quotas.Keep(t.Context(), quotaRecord("c", "a", 1, 0)); err == nil {
		t.Error("a quota is taken for durable")
	}
}

// TestQuotasOfSeveralSchedulers has two change quotas in the same store at a time: nothing is lost.
func TestQuotasOfSeveralSchedulers(t *testing.T) {
	store := records.NewMemory(0)
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i, instance := range []string{"a", "b"} {
		group.Go(func() {
			for n := range int64(20) {
				errs[i] = errors.Join(errs[i], durable.Quotas{Store: store}.Keep(t.Context(), quotaRecord("c", instance, n+1, 0)))
			}
		})
	}
	group.Wait()
	list, err := durable.Quotas{Store: store}.Load(t.Context())
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

// TestSchedulerStartsWithoutQuotas starts a scheduler while its Redis is unavailable. The scheduler
// must have the quotas when the Redis is back, except an invalid record.
func TestSchedulerStartsWithoutQuotas(t *testing.T) {
	redis := redistest.Start(t)
	state := state.Location("redis://" + redis.Addr)
	cohorts := writeConfig(t, "labels: {a: {pool: a}}\ncohorts: {farm: {labels: [a], unit: slots}}\n")
	redis.Kill()
	startTurns(t, Scheduler{State: state, Storage: storage.Settings{CacheSize: "10M"}}).serves()
	f := startTurns(t, Scheduler{State: state, Storage: storage.Settings{CacheSize: "10M"}, ConfigFile: cohorts})
	conn, err := dial.Dial(f.serves())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n := f.logs.FilterMessage("cannot read quotas; none is in force until this works").Len(); n != 1 {
		t.Errorf("it is said %d times that quotas cannot be read", n)
	}
	redis.Restart()
	store, err := records.OpenRedis(string(state), records.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	quotas := durable.Quotas{Store: store}
	if err := quotas.Keep(t.Context(), quotaRecord("farm", "team", 1, 2)); err != nil {
		t.Fatal(err)
	}
	f.says(1, "quota was changed elsewhere")
	if q := (&term{T: t, conn: conn}).quota(); q.GetMin() != 1 || q.GetMax() != 2 {
		t.Errorf("the quota is %v", q)
	}
	if err := store.Put(t.Context(), quotas.Key(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := startTurns(t, Scheduler{State: state, Storage: storage.Settings{CacheSize: "10M"}, ConfigFile: cohorts}).ends(); err == nil {
		t.Error("quotas that nobody can have written are taken")
	}
}
