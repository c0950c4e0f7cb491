package history

import (
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/printable"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A Field is a text by which a search finds records. An operation without a target has the beginning
// of its command line in its place. For a build, Target has its patterns and the targets and tests
// that failed, Mnemonic the command, User also the user that the build tool reports, and Worker the
// host or user@host where the build ran.
type Field int

// All fields.
const (
	Instance Field = iota
	Target
	Mnemonic
	User
	Invocation
	Worker
	fields
)

// The mark of a row is its outcome, plus these flags if the operation ran more than once, or
// if the row is a build.
const (
	outcomeMask = 0x0f
	buildMark   = 0x40
	retriedMark = 0x80
)

// A Row has what the index says of a record.
type Row struct {
	// Operation is the name of the operation, Action the hash of its action, which may be followed
	// by its size.
	Operation string
	Action    []byte
	// Ended is the end of the operation, in milliseconds, and Took the duration of its last run.
	Ended              int64
	Took               time.Duration
	Outcome            historypb.Outcome
	IsRetried, IsBuild bool
	Texts              [fields]string
}

// rowOf returns the row of a record.
func rowOf(r *historypb.Record) *Row {
	row := &Row{
		Operation: r.GetOperation(), Action: []byte(r.GetAction()),
		Ended: r.GetEnded().AsTime().UnixMilli(), Outcome: r.GetOutcome(), IsRetried: r.GetAttempts() > 1,
		Texts: [fields]string{
			Instance: r.GetInstanceName(), Target: r.GetTarget(), Mnemonic: r.GetMnemonic(),
			User: r.GetUser(), Invocation: r.GetInvocation(), Worker: r.GetWorker(),
		},
	}
	row.NameBy(slices.Values(r.GetArguments()))
	row.Took = tookOf(r)
	if b := r.GetBuild(); b != nil {
		row.IsBuild = true
		row.Texts[Target], row.Texts[Worker] = targetsOf(b), originOf(b)
	}
	return row
}

// tookOf returns the duration of the last run; 0: there was none.
func tookOf(r *historypb.Record) time.Duration {
	if r.GetStarted() == nil {
		return 0
	}
	return r.GetEnded().AsTime().Sub(r.GetStarted().AsTime())
}

// commandMark begins the text of Target of an operation that has no target: its command line
// follows, as lists show it. No target begins so, because it would not be UTF-8.
const commandMark = "\xff"

// isCommand reports whether a text of Target is a command line.
func isCommand(text string) bool { return strings.HasPrefix(text, commandMark) }

// NameBy lets an operation without a target be found by its command line, as lists show it.
func (r *Row) NameBy(arguments iter.Seq[string]) {
	if r.Texts[Target] != "" {
		return
	}
	if command := printable.Brief(arguments); command != "" {
		r.Texts[Target] = commandMark + command
	}
}

// took returns the duration of the last run in milliseconds.
func (r *Row) took() uint32 { return uint32(min(max(r.Took.Milliseconds(), 0), math.MaxUint32)) }

// mark returns the outcome and the flags.
func (r *Row) mark() uint8 {
	mark := uint8(r.Outcome) & outcomeMask
	if r.IsRetried {
		mark |= retriedMark
	}
	if r.IsBuild {
		mark |= buildMark
	}
	return mark
}

// digits returns the first 16 hexadecimal digits of a name or hash as a number, and how many digits
// there were. It skips dashes, and everything after another character.
func digits[T string | []byte](s T) (v uint64, n int) {
	for i := 0; i < len(s) && n < 16; i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c == '-':
			continue
		default:
			return v << (4 * (16 - n)), n
		}
		v = v<<4 | uint64(c)
		n++
	}
	return v << (4 * (16 - n)), n
}
