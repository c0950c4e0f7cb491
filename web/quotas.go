package web

import (
	"context"
	"fmt"
	"net/http"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/charts"
)

// A cohortView is a cohort with one row per instance name.
type cohortView struct {
	*admin.Cohort
	Waiting int64 // waiting actions of all instance names
	Rows    []quotaRow
}

type quotaRow struct {
	*admin.Quota
	// Bar is the used part of the capacity, with marks at the guarantee and at the maximum.
	Bar charts.Meter
}

// A quotaPages serves the page of cohorts.
type quotaPages struct{ *answers.Source }

func (p *quotaPages) list(ctx context.Context, _ *http.Request) (any, error) {
	list, err := answers.Get(ctx, p.Source, "quotas", func(ctx context.Context) (*admin.ListQuotasResponse, error) {
		return p.Scheduler.ListQuotas(ctx, &admin.ListQuotasRequest{})
	})
	if err != nil {
		return nil, err
	}
	views := make([]cohortView, len(list.GetCohorts()))
	for i, c := range list.GetCohorts() {
		views[i].Cohort = c
		scale := float64(max(c.GetCapacity(), c.GetUsed(), 1))
		for _, q := range c.GetQuotas() {
			views[i].Waiting += q.GetWaiting()
			label := fmt.Sprintf("uses %d of %d", q.GetUsed(), c.GetCapacity())
			var marks []float64
			for _, mark := range []int64{q.GetMin(), q.GetMax()} {
				if mark > 0 {
					marks = append(marks, float64(mark)/scale)
				}
			}
			views[i].Rows = append(views[i].Rows, quotaRow{q, charts.MeterOf(label, float64(q.GetUsed())/scale, marks...)})
		}
	}
	return views, nil
}
