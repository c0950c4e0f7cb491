package finished

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// maxCommandBytes limits the size of a command.
const maxCommandBytes = 256 << 10

// A draft is a record that is being made, in memory that is used again: garbage of records slows
// down dispatch more than making them.
type draft struct {
	wire wire
	row  history.Row
}

// arguments adds the first arguments of an encoded Command.
func (d *draft) arguments(command []byte) {
	begin := len(d.wire.b)
	d.wire.arguments(command, maxArguments)
	d.row.NameBy(argumentsIn(d.wire.b[begin:]))
}

// isUsual: nobody looks for the cause of such an end.
func (d *draft) isUsual() bool {
	return d.row.Outcome == historypb.Outcome_SUCCEEDED || d.row.Outcome == historypb.Outcome_CANCELLED
}

// command adds the digest of the command, and its arguments if it was sent to a worker. If it was
// not it returns the digest, which is the zero one where there is nothing to read.
func (d *draft) command(st *event.Status, sent *commands) (missing digest.Digest) {
	if st.Action == nil {
		return digest.Digest{}
	}
	if command := sent.end(operation.ExtrasOf(st.Operation).Sent); command != nil {
		d.wire.digest(commandField, st.Action.GetCommandDigest())
		d.arguments(command)
		return digest.Digest{}
	}
	of, err := digest.FromProto(st.Digest.Function(), st.Action.GetCommandDigest())
	if err != nil {
		return digest.Digest{}
	}
	d.wire.ownDigest(commandField, of)
	if of.SizeBytes() > maxCommandBytes {
		return digest.Digest{}
	}
	return of
}
