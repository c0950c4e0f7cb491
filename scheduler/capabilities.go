package scheduler

import (
	"context"
	"math"

	"github.com/bazelbuild/remote-apis/build/bazel/semver"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// capabilitiesService is REv2's Capabilities, for execution and, by the options, for the cache.
type capabilitiesService struct {
	cache func() *repb.CacheCapabilities
}

// GetCapabilities returns the same for every instance name.
func (s capabilitiesService) GetCapabilities(
	context.Context, *repb.GetCapabilitiesRequest,
) (*repb.ServerCapabilities, error) {
	var cache *repb.CacheCapabilities
	if s.cache != nil {
		cache = s.cache()
	}
	var functions []repb.DigestFunction_Value
	for _, fn := range digest.Functions() {
		functions = append(functions, fn.Proto())
	}
	return &repb.ServerCapabilities{
		CacheCapabilities: cache,
		ExecutionCapabilities: &repb.ExecutionCapabilities{
			DigestFunction:  functions[0],
			DigestFunctions: functions,
			ExecEnabled:     true,
			// Every priority is taken.
			ExecutionPriorityCapabilities: &repb.PriorityCapabilities{
				Priorities: []*repb.PriorityCapabilities_PriorityRange{
					{MinPriority: math.MinInt32, MaxPriority: math.MaxInt32},
				},
			},
		},
		LowApiVersion:  &semver.SemVer{Major: 2, Minor: 0},
		HighApiVersion: &semver.SemVer{Major: 2, Minor: 3},
	}, nil
}
