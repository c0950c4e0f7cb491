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
	// maxRuns limits the runs of a target that are compared: a target may have many actions of one
	// mnemonic.
	maxRuns = 200
	// strange is the distance of a run without a known command line; otherOutputs that of other
	// outputs.
	strange, otherOutputs = 1 << 20, 8
)

// sameBefore returns the last run of the same action before this one; nil: none is known.
func (x *explaining) sameBefore() *historypb.Record {
	begin := x.r.GetQueued()
	if begin == nil {
		begin = x.r.GetEnded()
	}
	list, err := x.Records(x.ctx, &admin.ListRecordsRequest{
		Pattern: &admin.Pattern{Attributes: map[string]string{"action": x.r.GetAction(), "instance": text.Glob(x.r.GetInstanceName())}},
		// Operations that joined the same run ended with it.
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

// nearest returns the run of the same target, with another action, that is most like this one: if
// possible one before it. Of a client that names no targets it is a run of the same program.
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
			slices.Reverse(runs) // the first after it
		}
		if r := x.nearestOf(runs); r != nil {
			return r
		}
	}
	if x.r.GetTarget() == "" {
		x.say("No other run of the same program is known here.")
	} else {
		x.say("No other run of %s (%s) is known here, so there was no earlier result to find.", x.r.GetTarget(), x.r.GetMnemonic())
	}
	return nil
}

// nearestOf returns the first of the nearest ones.
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

// distance is how much the command of one run differs from that of another.
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

// pathsOf are the outputs that a record has.
func pathsOf(r *historypb.Record) string {
	var b strings.Builder
	for _, o := range r.GetOutputs() {
		b.WriteString(o.GetPath() + "\n")
	}
	return b.String()
}
