package web

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/comparison"
)

// comparePatience is the time for reading all that is compared.
const comparePatience = 5 * time.Second

// A compared says why an action ran.
type compared struct {
	*comparison.Explanation
	// Run is the one that it is compared with; nil: none is known.
	Run *recordRow
}

// compare compares an operation with the nearest other one of the same target.
func (s *Site) compare(ctx context.Context, r *historypb.Record) *compared {
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	if !auth.Allowed(ctx, auth.Read, r.GetInstanceName()) && !auth.Allowed(ctx, auth.Observe, "") {
		return &compared{Explanation: &comparison.Explanation{Problem: "You may not read what is in the storage of this instance name."}}
	}
	leave, err := s.trees.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		return &compared{Explanation: &comparison.Explanation{Problem: "Others read input roots: try again later."}}
	}
	defer leave()
	from := comparison.Source{
		Records: s.options.Scheduler.ListRecords,
		Blobs:   s.options.Blobs,
	}
	if s.options.Profiles != nil {
		from.Profile = func(ctx context.Context, instance string, reduced digest.Digest) ([]byte, error) {
			return s.options.Profiles.Get(ctx, record.Key{Bucket: names.ProfileBucket, Instance: instance, Digest: reduced})
		}
	}
	c := &compared{Explanation: from.Explain(ctx, r)}
	if c.Other != nil {
		row := rowOf(c.Other)
		c.Run = &row
	}
	return c
}
