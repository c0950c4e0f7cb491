package finished

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/proto/plural"
)

const (
	// maxPage and maxPageBytes limit the records of one answer; maxSlowest those of one without
	// further pages.
	maxPage, maxPageBytes = 1000, 1 << 20
	maxSlowest            = 50
	// answerBytes is the memory that such a page takes, and recordBytes that of one record, beside
	// their encoded answers.
	answerBytes = 4 * maxPageBytes
	recordBytes = 4 * history.MaxRecordBytes
)

// Admin is the part of the operators' service that shows records.
type Admin struct{ *Recorder }

// find searches when it is the caller's turn and there is memory for the result.
func (a Admin) find(ctx context.Context, q history.Query, memory int64) ([]*historypb.Record, string, error) {
	if err := intake.Reserve(ctx, memory); err != nil {
		return nil, "", err
	}
	leave, err := a.searches.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		return nil, "", err
	}
	defer leave()
	owns := auth.Owns
	if q.Builds {
		owns = auth.OwnsBuild
	}
	q.Owned = func(user, instance string) bool {
		return owns(ctx, auth.Owner{User: user, Instance: instance}, auth.Observe)
	}
	return a.options.Store.Find(ctx, q)
}

// ListRecords implements admin.SchedulerServer. The caller sees his own.
func (a Admin) ListRecords(ctx context.Context, req *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error) {
	if a.Recorder == nil {
		return &admin.ListRecordsResponse{}, nil
	}
	q := history.Query{
		Text: strings.TrimSpace(req.GetText()), Outcomes: req.GetOutcomes(), Retried: req.GetRetried(), MinRun: req.GetMinRun().AsDuration(),
		Builds: req.GetBuilds(), After: req.GetPageToken(),
		Limit: int(req.GetPageSize()), MaxBytes: maxPageBytes,
	}
	most := maxPage
	if req.GetSlowest() {
		q.Order, most = history.Slowest, maxSlowest
	}
	if q.Limit <= 0 || q.Limit > most {
		q.Limit = most
	}
	if req.GetSince() != nil {
		q.Since = req.GetSince().AsTime()
	}
	if req.GetBefore() != nil {
		q.Before = req.GetBefore().AsTime()
	}
	if req.GetPattern() != nil {
		if err := addPattern(&q, req.GetPattern()); err != nil {
			return nil, err
		}
	}
	found, next, err := a.find(ctx, q, answerBytes)
	if err != nil {
		return nil, answerOf(err)
	}
	return &admin.ListRecordsResponse{Records: found, NextPageToken: next}, nil
}

// fieldNames maps the names of patterns to fields of records, and buildNames those of patterns of
// builds.
var (
	fieldNames = map[string]history.Field{
		"instance": history.Instance, "invocation": history.Invocation, "mnemonic": history.Mnemonic,
		"target": history.Target, "user": history.User, "worker": history.Worker,
	}
	buildNames = map[string]history.Field{
		"instance": history.Instance, "invocation": history.Invocation, "command": history.Mnemonic,
		"target": history.Target, "user": history.User, "host": history.Worker,
	}
)

// addPattern restricts q to matches of a pattern.
func addPattern(q *history.Query, m *admin.Pattern) error {
	p, err := pattern.New(m.GetAttributes())
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "pattern: %v", err)
	}
	q.Where = map[history.Field]string{}
	for name, value := range p.OfOperations(names.OperationPrefix).Map() {
		field, known := fieldNames[name]
		if q.Builds {
			field, known = buildNames[name]
		}
		switch {
		case known:
			q.Where[field] = value
		case name == "operation" && !q.Builds:
			q.Operation = value
		case name == "action" && !q.Builds:
			q.Action = value
		default:
			return status.Errorf(codes.InvalidArgument, "pattern %q: no record has %q; there are %s", p, name, knownNames(q.Builds))
		}
	}
	return nil
}

// knownNames lists the names of patterns.
func knownNames(builds bool) string {
	if builds {
		return strings.Join(slices.Sorted(maps.Keys(buildNames)), ", ")
	}
	return strings.Join(slices.Sorted(maps.Keys(fieldNames)), ", ") + ", operation and action"
}

// GetRecord implements admin.SchedulerServer. For the caller, an invisible record does not exist.
func (a Admin) GetRecord(ctx context.Context, req *admin.GetRecordRequest) (*historypb.Record, error) {
	q := history.Query{Operation: req.GetOperation(), Action: req.GetAction(), Exact: true, Order: history.Latest, Limit: 1}
	if q.Action == "" && q.Operation == "" {
		return nil, status.Error(codes.InvalidArgument, "name an operation or an action")
	}
	if a.Recorder == nil {
		return nil, gone(q, "no records are kept (--keep-records)")
	}
	found, _, err := a.find(ctx, q, recordBytes)
	if err != nil {
		return nil, answerOf(err)
	}
	if len(found) == 0 {
		return nil, gone(q, a.kept())
	}
	return found[0], nil
}

// gone is the error for a missing record, with possible reasons.
func gone(q history.Query, why string) error {
	if q.Action != "" {
		return status.Errorf(codes.NotFound, "no operation of action %q is known, or it ended too long ago: %s", q.Action, why)
	}
	return status.Errorf(codes.NotFound, "operation %q is unknown, or ended too long ago: %s", q.Operation, why)
}

// kept says for how long records are kept.
func (a Admin) kept() string {
	keep := a.options.Store.Keep()
	if keep == 0 {
		return "the oldest records are removed when records_size is reached"
	}
	period := keep.String()
	if days := int(keep.Hours() / 24); keep == time.Duration(days)*24*time.Hour {
		period = plural.Of(days, "day")
	}
	return fmt.Sprintf("records are kept for %s (--keep-records) while there is room (records_size)", period)
}

// answerOf returns the caller's error for err.
func answerOf(err error) error {
	if errors.Is(err, history.ErrToken) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
