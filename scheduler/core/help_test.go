package core

import (
	"bytes"
	"context"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

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

// sizeStore is a record.Hints in memory.
type sizeStore map[record.Key][]byte

func (s sizeStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	if value, ok := s[k]; ok {
		return bytes.Clone(value), nil
	}
	return nil, record.ErrNotFound
}

func (s sizeStore) Put(_ context.Context, k record.Key, value []byte) error {
	s[k] = bytes.Clone(value)
	return nil
}

// conditions returns the conditions of a choice among classes.
func conditions(classes []sizeclass.Class) sizeclass.Conditions {
	return sizeclass.Conditions{Now: time.Now(), Classes: classes}
}
