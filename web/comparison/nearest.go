package comparison

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/text"
)

const (
	// maxRuns limits the compared runs of a target: a target may have many actions of one mnemonic.
	maxRuns = 200
	// strange is the distance of a run whose command line is unknown, otherOutputs that of a run
	// with other outputs.
	strange, otherOutputs = 1 << 20, 8
)

// sameBefore returns the previous run of the same action; nil if none is known.
func (x *explaining) sameBefore() *historypb.Record {
	begin := x.r.GetQueued()
	if begin == nil {
		begin = x.r.GetEnded()
	}
	list, err := x.Records(x.ctx, &admin.ListRecordsRequest{
		Pattern: &admin.Pattern{Attributes: map[string]string{"action": x.r.GetAction(), "instance": text.Glob(x.r.GetInstanceName())}},
		// Operations that joined the same run ended at the same time.
		Before: timestamppb.New(begin.AsTime()), PageSize: 1,
	})
	if err != nil {
		return nil
	}
	for _, o := range list.GetRecords() {
		if o.GetAction() == x.r.GetAction() && o.GetInstanceName() == x.r.GetInstanceName() && o.GetOperation() != x.r.GetOperation() {
			return o
		}
	}
	return nil
}

// nearest returns the most similar run of the same target with another action, preferably an
// earlier one. If the client names no targets, it searches runs of the same program.
func (x *explaining) nearest() *historypb.Record {
	for _, req := range []*admin.ListRecordsRequest{{Before: x.r.GetEnded()}, {Since: x.r.GetEnded()}} {
		req.PageSize = maxRuns
		req.Pattern = &admin.Pattern{Attributes: map[string]string{
			"target": text.Glob(x.r.GetTarget()), "mnemonic": text.Glob(x.r.GetMnemonic()), "instance": text.Glob(x.r.GetInstanceName()),
		}}
		list, err := x.Records(x.ctx, req)
		if err != nil {
			x.Problem = "Other runs cannot be found now: " + err.Error()
			return nil
		}
		runs := slices.Clone(list.GetRecords())
		if req.Since != nil {
			slices.Reverse(runs) // so that the first one after this run comes first
		}
		if r := x.nearestOf(runs); r != nil {
			return r
		}
	}
	switch {
	case x.r.GetTarget() == "":
		x.say("No other run of the same program is known here.")
	case x.wasCached():
		x.say("No other run of %s (%s) is known here.", x.r.GetTarget(), x.r.GetMnemonic())
	default:
		x.say("No other run of %s (%s) is known here, so there was no earlier result to find.", x.r.GetTarget(), x.r.GetMnemonic())
	}
	return nil
}

// nearestOf returns the run with the smallest distance; of equal ones, the first.
func (x *explaining) nearestOf(runs []*historypb.Record) (nearest *historypb.Record) {
	best := 0
	for _, o := range runs {
		if o.GetTarget() != x.r.GetTarget() || o.GetMnemonic() != x.r.GetMnemonic() || o.GetInstanceName() != x.r.GetInstanceName() ||
			o.GetDigestFunction() != x.r.GetDigestFunction() || o.GetAction() == x.r.GetAction() {
			continue
		}
		if x.r.GetTarget() == "" && program(o) != program(x.r) {
			continue
		}
		if d := distance(x.r, o); nearest == nil || d < best {
			nearest, best = o, d
		}
	}
	return nearest
}

func program(r *historypb.Record) string {
	if len(r.GetArguments()) == 0 {
		return ""
	}
	return r.GetArguments()[0]
}

// distance measures how much the commands of two runs differ.
func distance(r, o *historypb.Record) int {
	d := 0
	if a, b := pathsOf(r), pathsOf(o); a != "" && b != "" && a != b {
		d = otherOutputs
	}
	switch {
	case r.GetCommand() != "" && r.GetCommand() == o.GetCommand():
		return d
	case len(r.GetArguments()) == 0 || len(o.GetArguments()) == 0:
		return d + strange
	}
	return d + 1 + len(lacking(r.GetArguments(), o.GetArguments())) + len(lacking(o.GetArguments(), r.GetArguments()))
}

// pathsOf returns the output paths of a record as one text.
func pathsOf(r *historypb.Record) string {
	var b strings.Builder
	for _, o := range r.GetOutputs() {
		b.WriteString(o.GetPath() + "\n")
	}
	return b.String()
}
