package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/stored"
)

const (
	// leastDigits is the number of digits that pages and "explain" print of a hash.
	leastDigits = 12
	// actionNames says in help texts how an action is named.
	actionNames = "ACTION is HASH/SIZE, as in logs and Bazel's execution log, or the first twelve digits of the hash, for its last run; or the\n" +
		"name of a completed operation, as in \"forerunner history\"."
	// nameAction is the error for a missing argument.
	nameAction = "give one action as HASH/SIZE or the first twelve digits of its hash, or one operation; \"forerunner history\" lists operations"
)

// actionOf returns the action of a name (actionNames). The record is nil if the name is HASH/SIZE,
// for which the scheduler need not have one.
func actionOf(ctx context.Context, s admin.SchedulerClient, name string) (digest.Digest, *historypb.Record, error) {
	if strings.Contains(strings.TrimPrefix(name, names.OperationPrefix), "/") {
		d, err := parseDigest(name)
		return d, nil, err
	}
	r, err := recordOf(ctx, s, name)
	if err != nil {
		return digest.Digest{}, nil, err
	}
	d, err := parseDigest(r.GetAction())
	return d, r, err
}

// recordOf returns the record of an operation, or of the last run of an action.
func recordOf(ctx context.Context, s admin.SchedulerClient, name string) (*historypb.Record, error) {
	req := &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Action{Action: name}}
	rest := strings.TrimPrefix(name, names.OperationPrefix)
	isOperation := !strings.Contains(rest, "/")
	switch {
	case !isOperation:
		if _, err := stored.Digest(digest.SHA256, name); err != nil {
			return nil, settings.Wrong("ACTION: %w", err)
		}
	case len(rest) < leastDigits || strings.Trim(rest, "0123456789abcdef-") != "":
		return nil, settings.Wrong("%q names no action: %s", name, nameAction)
	default:
		req.Of = &admin.GetRecordRequest_Operation{Operation: operationName(name)}
	}
	r, err := s.GetRecord(ctx, req)
	if status.Code(err) != codes.NotFound {
		return r, err
	}
	if isOperation {
		if op, err := s.GetOperation(ctx, &admin.GetOperationRequest{Name: operationName(name)}); err == nil && !op.GetDone() {
			return nil, fmt.Errorf("%s has not ended yet: try again when it has; forerunner operation %s shows its state", op.GetName(), rest)
		}
	}
	if r := beginningWith(ctx, s, rest); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%s; \"forerunner history\" lists those with a record. Results that a client took from the action cache itself have none",
		status.Convert(err).Message())
}

// beginningWith returns the record of the last run of the action whose hash begins with the digits;
// nil: there is none.
func beginningWith(ctx context.Context, s admin.SchedulerClient, digits string) *historypb.Record {
	if len(digits) < leastDigits {
		return nil
	}
	list, err := s.ListRecords(ctx, &admin.ListRecordsRequest{Text: digits, PageSize: 1})
	if err != nil || len(list.GetRecords()) == 0 || !strings.HasPrefix(list.GetRecords()[0].GetAction(), digits) {
		return nil
	}
	return list.GetRecords()[0]
}
