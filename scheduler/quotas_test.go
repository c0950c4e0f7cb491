package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// oneCohort is of the workers with OS=x, in slots.
func oneCohort() tuning.Config {
	return tuning.Config{Quotas: quota.Config{
		Labels:  []quota.Label{{Name: "x", Properties: map[string]string{"OS": "x"}}},
		Cohorts: []quota.Cohort{{Name: "farm", Labels: []string{"x"}, Unit: quota.Slots}},
	}}
}

func platformX() *repb.Platform {
	return &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OS", Value: "x"}}}
}

// TestQuotasByOperator changes quotas while one worker of a cohort works, and checks the effect.
func TestQuotasByOperator(t *testing.T) {
	var kept []quota.Record
	o := ServerOptions{
		Config:    oneCohort(),
		Quotas:    []quota.Record{{Key: quota.Key{Cohort: "farm", Instance: "old"}, Quota: quota.Quota{Min: 1}}, {Key: quota.Key{Cohort: "gone", Instance: "old"}, Quota: quota.Quota{Min: 1}}},
		KeepQuota: func(_ context.Context, r quota.Record) error { kept = append(kept, r); return nil },
	}
	inFarm(t, o, func(t *testing.T, f *farm) {
		op := f.operator()
		if n := f.logs.FilterMessage("quota is not in force").Len(); n != 1 {
			t.Errorf("%d warnings of a cohort that is gone", n)
		}
		w := f.worker("w")
		w.req.Platform = platformX()
		action := f.storage.action("a", func(a *repb.Action, _ *repb.Command) { a.Platform = platformX() })
		s := f.execute(t.Context(), &repb.ExecuteRequest{InstanceName: "a", ActionDigest: action})
		s.at(repb.ExecutionStage_QUEUED)
		put := asked(t, op.PutQuota, &admin.PutQuotaRequest{Cohort: "farm", InstanceName: "a", Min: 1, Max: 1})
		if !strings.Contains(put.GetCohort().GetWarning(), "add up to 2, the workers of the cohort to 0") {
			t.Errorf("warning %q", put.GetCohort().GetWarning())
		}
		w.idle()
		list := asked(t, op.ListQuotas, &admin.ListQuotasRequest{})
		c := list.GetCohorts()[0]
		names := []string{}
		for _, q := range c.GetQuotas() {
			names = append(names, q.GetInstanceName())
		}
		if c.GetCapacity() != 1 || c.GetUsed() != 1 || c.GetUnit() != "slots" || !slices.Equal(names, []string{"a", "old"}) {
			t.Errorf("%v", c)
		}
		other := f.storage.action("b", func(a *repb.Action, _ *repb.Command) { a.Platform = platformX() })
		f.execute(t.Context(), &repb.ExecuteRequest{InstanceName: "a", ActionDigest: other}).at(repb.ExecutionStage_QUEUED)
		name := "a"
		a := asked(t, op.ListQuotas, &admin.ListQuotasRequest{Cohort: "farm", InstanceName: &name}).GetCohorts()[0].GetQuotas()
		if len(a) != 1 || a[0].GetUsed() != 1 || a[0].GetWaiting() != 1 || a[0].GetMax() != 1 {
			t.Errorf("%v", a)
		}
		q := asked(t, op.ListQueues, &admin.ListQueuesRequest{}).GetQueues()[0]
		if !strings.Contains(q.GetHeadReason(), "at its maximum") || !strings.Contains(q.GetRoot().GetChildren()[0].GetWhy(), "uses 1 of 1 slot") {
			t.Errorf("%v", q)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := f.logs.FilterMessage("quotas guarantee more than the cohort has").Len(); n != 1 {
			t.Errorf("%d warnings of too many promises, want 1", n)
		}
		asked(t, op.DeleteQuota, &admin.DeleteQuotaRequest{Cohort: "farm", InstanceName: "a"})
		if want := []quota.Record{{Key: quota.Key{Cohort: "farm", Instance: "a"}, Quota: quota.Quota{Min: 1, Max: 1}}, {Key: quota.Key{Cohort: "farm", Instance: "a"}}}; !slices.Equal(kept, want) {
			t.Errorf("kept %v, want %v", kept, want)
		}
		refusedQuotas(t, op)
	})
}

// TestQuotasChangedElsewhere has another scheduler change what both keep.
func TestQuotasChangedElsewhere(t *testing.T) {
	kept := []quota.Record{{Key: quota.Key{Cohort: "farm", Instance: "a"}, Quota: quota.Quota{Min: 1}}, {Key: quota.Key{Cohort: "gone", Instance: "a"}, Quota: quota.Quota{Min: 1}}}
	type answer struct {
		quotas []quota.Record
		err    error
	}
	var now atomic.Value
	now.Store(answer{kept, nil})
	o := ServerOptions{Config: oneCohort(), Quotas: kept, LoadQuotas: func(context.Context) ([]quota.Record, error) {
		a := now.Load().(answer)
		return a.quotas, a.err
	}}
	inFarm(t, o, func(t *testing.T, f *farm) {
		expect := func(want string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := ""
			for _, q := range asked(t, f.operator().ListQuotas, &admin.ListQuotasRequest{}).GetCohorts()[0].GetQuotas() {
				got += fmt.Sprintf("%s %d-%d ", q.GetInstanceName(), q.GetMin(), q.GetMax())
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		expect("a 1-0 ")
		kept := []quota.Record{{Key: quota.Key{Cohort: "farm", Instance: "a"}, Quota: quota.Quota{Min: 1, Max: 2}}, {Key: quota.Key{Cohort: "farm", Instance: "b"}, Quota: quota.Quota{Max: 3}}}
		now.Store(answer{kept, nil})
		expect("a 1-2 b 0-3 ")
		now.Store(answer{kept[1:], nil})
		expect("b 0-3 ")
		now.Store(answer{nil, errors.New("away")})
		expect("b 0-3 ")
		if n := f.logs.FilterMessageSnippet("cannot read quotas").Len(); n != 1 {
			t.Errorf("%d warnings about quotas", n)
		}
	})
}

// TestOneLimitOfAQuota has one of the limits be put, and the other one stay as it is.
func TestOneLimitOfAQuota(t *testing.T) {
	inFarm(t, ServerOptions{Config: oneCohort()}, func(t *testing.T, f *farm) {
		for _, test := range []struct {
			req  *admin.PutQuotaRequest
			want quota.Quota
		}{
			{&admin.PutQuotaRequest{Min: 2, KeepMax: true}, quota.Quota{Min: 2}},
			{&admin.PutQuotaRequest{Max: 9, KeepMin: true}, quota.Quota{Min: 2, Max: 9}},
			{&admin.PutQuotaRequest{Min: 3, KeepMax: true}, quota.Quota{Min: 3, Max: 9}},
			{&admin.PutQuotaRequest{Max: 0, KeepMin: true}, quota.Quota{Min: 3}},
			{&admin.PutQuotaRequest{Max: 4}, quota.Quota{Max: 4}},
		} {
			test.req.Cohort, test.req.InstanceName = "farm", "a"
			q := asked(t, f.operator().PutQuota, test.req).GetCohort().GetQuotas()[0]
			if got := (quota.Quota{Min: q.GetMin(), Max: q.GetMax()}); got != test.want {
				t.Errorf("%v gives %+v, want %+v", test.req, got, test.want)
			}
		}
	})
}

func refusedQuotas(t *testing.T, op admin.SchedulerServer) {
	t.Helper()
	_, err := op.PutQuota(t.Context(), &admin.PutQuotaRequest{Cohort: "x", InstanceName: "a", Min: 1})
	wantStatus(t, err, codes.NotFound, "there are farm")
	_, err = op.PutQuota(t.Context(), &admin.PutQuotaRequest{Cohort: "farm", InstanceName: "a", Min: 2, Max: 1})
	wantStatus(t, err, codes.InvalidArgument, "less than the minimum")
	_, err = op.DeleteQuota(t.Context(), &admin.DeleteQuotaRequest{Cohort: "farm", InstanceName: "a"})
	wantStatus(t, err, codes.NotFound, "has no quota")
	_, err = op.ListQuotas(t.Context(), &admin.ListQuotasRequest{Cohort: "x"})
	wantStatus(t, err, codes.NotFound, "no cohort")
}
