package scheduler

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// mostCommand limits the Commands that are sent with actions, regardless of the worker's limit: the
// answer stays small.
const mostCommand = 64 << 10

// maxCommandBytes returns how large a Command the caller takes with an action; 0: none.
func maxCommandBytes(ctx context.Context) int64 {
	values := intake.Header(ctx, names.CommandHeader)
	if len(values) != 1 {
		return 0
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return 0
	}
	return min(n, mostCommand)
}

// withCommand adds the Command of an action to its auxiliary metadata, if the worker has requested
// it. Here it is local, and saves the worker a call. An unreadable one is omitted: the worker finds
// the error.
func (s queueService) withCommand(ctx context.Context, list []*anypb.Any, op *request.Operation) []*anypb.Any {
	if s.storage == nil {
		return list
	}
	d, err := digest.FromProto(op.Digest.Function(), op.Action.GetCommandDigest())
	if most := maxCommandBytes(ctx); err != nil || most <= 0 || d.SizeBytes() > most {
		return list
	}
	b, err := s.storage(op).Read(ctx, d)
	if err != nil {
		return list
	}
	s.records.Sent(op, b)
	return append(slices.Clip(list), &anypb.Any{TypeUrl: names.CommandType, Value: b})
}
