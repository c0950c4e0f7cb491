package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/text"
)

// Words with which the line of an action begins.
const (
	ok        = "ok"
	cached    = "cached"
	failed    = "failed"
	cancelled = "cancelled"
)

// Columns of a line: the time, a word, the target, which gets the remaining width, the mnemonic,
// the duration, and the rest.
const (
	headColumns     = 8 + 1 + 9 + 1
	mnemonicColumns = 14
	ranColumns      = 8
	restColumns     = 42
	leastTarget     = 12
)

// A line is that of an action.
type line struct {
	word             string
	target, mnemonic string
	ran              time.Duration
	rest             []string
}

// actionOf makes it from a worker's log entry.
func actionOf(v values) line {
	l := lineOf(v)
	l.ran = v.duration("execute")
	fetched := v.duration("accept") + v.duration("fetch") + v.duration("mount") + v.duration("prepare")
	switch outcome := v.text(names.OutcomeField); outcome {
	case "ok":
		l.word = ok
	case "exit_code":
		l.fail("exit code " + v.text(names.ExitCodeField))
	case "out_of_memory":
		l.fail("out of memory")
	case "Canceled":
		l.word = cancelled
	default:
		l.fail(cmp.Or(v.text(names.ErrorField), outcome))
	}
	l.rest = append(l.rest, "fetch "+text.Duration(fetched))
	if away := v.number("files") - v.number("local"); away > 0 {
		l.rest = append(l.rest, fmt.Sprintf("foreseen %d/%d", v.number("foreseen"), away))
	}
	return l
}

// operationOf makes it from a scheduler's log entry.
func operationOf(v values) line {
	l := lineOf(v)
	l.ran = v.duration(names.RanField)
	switch v.text(names.OutcomeField) {
	case "succeeded":
		l.word = ok
	case "cached":
		l.word = cached
	case "cancelled":
		l.word = cancelled
	case "failed":
		l.fail("exit code " + v.text(names.ExitCodeField))
	default:
		l.fail(v.text(names.ErrorField))
	}
	if queued := v.duration(names.QueuedField); queued > 0 {
		l.rest = append(l.rest, "waited "+text.Duration(queued))
	}
	if worker := v.text(names.WorkerField); worker != "" {
		l.rest = append(l.rest, cmp.Or(hostOf(worker), worker))
	}
	return l
}

// hostOf returns the host of a worker, as patterns name it; empty if it has none.
func hostOf(worker string) string {
	for pair := range strings.SplitSeq(worker, ",") {
		if host, ok := strings.CutPrefix(pair, names.HostKey+"="); ok {
			return host
		}
	}
	return ""
}

func lineOf(v values) line {
	return line{target: cmp.Or(v.text(names.TargetField), text.Short(v.text(names.ActionField))), mnemonic: v.text(names.MnemonicField)}
}

func (l *line) fail(why string) { l.word, l.rest = failed, append(l.rest, why) }

func (l line) colour() string {
	return map[string]string{failed: red, cancelled: yellow, cached: dim}[l.word]
}

// line formats it in at most that many columns.
func (l line) line(at time.Time, columns int) string {
	target := max(columns-headColumns-1-mnemonicColumns-1-ranColumns-2-restColumns, leastTarget)
	ran := ""
	if l.ran > 0 {
		ran = text.Duration(l.ran)
	}
	whole := fmt.Sprintf("%s %-9s %s %s %*s  %s", at.Format(time.TimeOnly), l.word, printable.Padded(printable.Last(printable.Name(l.target), target), target),
		printable.Padded(printable.First(printable.Name(l.mnemonic), mnemonicColumns), mnemonicColumns), ranColumns, ran, printable.Name(strings.Join(l.rest, "  ")))
	return strings.TrimRight(printable.First(whole, max(columns, 1)), " ")
}
