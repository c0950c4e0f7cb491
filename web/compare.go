package web

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/comparison"
	"github.com/forerunner-build/forerunner/web/stored"
)

// comparePatience is the timeout for reading everything that is compared.
const comparePatience = 5 * time.Second

// A compared explains why an action ran.
type compared struct {
	*comparison.Explanation
	// Run is the run that the action is compared with; nil if none is known.
	Run *recordRow
}

// A comparer compares operations.
type comparer struct {
	scheduler admin.SchedulerServer
	blobs     func(instance string, fn digest.Function) stored.Blobs
	profiles  record.Hints  // nil: profiles are not available
	trees     *intake.Turns // for reading input roots
}

// compare compares an operation with the most similar other run of the same target.
func (c *comparer) compare(ctx context.Context, r *historypb.Record) *compared {
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	if !mayRead(ctx, r.GetInstanceName()) {
		return &compared{Explanation: &comparison.Explanation{Problem: "You have no right to read the storage of this instance name."}}
	}
	leave, err := c.trees.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		return &compared{Explanation: &comparison.Explanation{Problem: "Too many input roots are being read: try again later."}}
	}
	defer leave()
	from := comparison.Source{
		Records: c.scheduler.ListRecords,
		Blobs:   c.blobs,
	}
	if c.profiles != nil {
		from.Profile = func(ctx context.Context, instance string, reduced digest.Digest) ([]byte, error) {
			return c.profiles.Get(ctx, record.Key{Bucket: names.ProfileBucket, Instance: instance, Digest: reduced})
		}
	}
	v := &compared{Explanation: from.Explain(ctx, r)}
	if v.Other != nil {
		row := rowOf(v.Other)
		v.Run = &row
	}
	return v
}
