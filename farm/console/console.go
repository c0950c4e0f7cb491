package console

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/text"
)

// MostColumns is the length of the longest line of an action, in columns of a terminal, of which
// wide characters take two.
const MostColumns = 120

// sumEvery is how often actions are summed up.
const sumEvery = time.Minute

// Options are the options of a log.
type Options struct {
	// Level is the lowest written level; nil: info.
	Level zapcore.LevelEnabler
	// Colour enables colours.
	Colour bool
	// Columns returns the width of the terminal; nil: MostColumns.
	Columns func() int
	// IsWhole: both a scheduler and a worker log here. An action that this worker ran then has one
	// line, the first of the two.
	IsWhole bool
}

// New returns a core of a logger that writes to a terminal.
func New(out io.Writer, o Options) zapcore.Core {
	if o.Level == nil {
		o.Level = zapcore.InfoLevel
	}
	if o.Columns == nil {
		o.Columns = func() int { return MostColumns }
	}
	return &core{LevelEnabler: o.Level, screen: &screen{out: out, options: o, pairs: pairs{}}}
}

// A core is a zapcore.Core with the fields that its logger has.
type core struct {
	zapcore.LevelEnabler
	*screen
	fields []zapcore.Field
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.LevelEnabler, c.screen, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = append(c.fields[:len(c.fields):len(c.fields)], fields...)
	switch e.Message {
	case names.OperationFinished, names.ActionFinished:
		return c.action(e, valuesOf(fields))
	}
	return c.print(e, fields)
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// A screen is the common output of all loggers.
type screen struct {
	options Options

	mu    sync.Mutex // guards out and all below
	out   io.Writer
	sum   sum
	pairs pairs
}

// A sum counts the actions since the last one. Ran is for actions that ran.
type sum struct {
	all, failed, cached, ran int
	took                     time.Duration
}

// action writes the line of an action, unless it has another one.
func (s *screen) action(e zapcore.Entry, v values) error {
	isOperation := e.Message == names.OperationFinished
	l := actionOf(v)
	if isOperation {
		l = operationOf(v)
	}
	line := l.line(e.Time, min(s.options.Columns(), MostColumns))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.IsWhole && s.pairs.isSecond(v, isOperation) {
		return nil
	}
	s.addLocked(l)
	_, err := fmt.Fprintln(s.out, s.paint(l.colour(), line))
	return err
}

// addLocked counts an action. The first one of a sum schedules its output.
func (s *screen) addLocked(l line) {
	if s.sum.all == 0 {
		time.AfterFunc(sumEvery, s.sumUp)
	}
	s.sum.all++
	switch l.word {
	case failed:
		s.sum.failed++
	case cached:
		s.sum.cached++
	}
	if l.ran > 0 {
		s.sum.ran++
		s.sum.took += l.ran
	}
}

// sumUp writes the sum of the last minute.
func (s *screen) sumUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sum
	s.sum = sum{}
	said := fmt.Sprintf("%s in a minute: %d failed, %d cached", plural.Of(x.all, "action"), x.failed, x.cached)
	if x.ran > 0 {
		said += fmt.Sprintf("; they ran for %s on average", text.Duration(x.took/time.Duration(x.ran)))
	}
	_, _ = fmt.Fprintln(s.out, head(time.Now(), zapcore.InfoLevel, s)+said)
}

// print writes a line of another kind, whole.
func (s *screen) print(e zapcore.Entry, fields []zapcore.Field) error {
	line := head(e.Time, e.Level, s)
	if e.LoggerName != "" {
		line += printable.Name(e.LoggerName) + ": "
	}
	line += printable.Lines(e.Message)
	for _, f := range fields {
		for _, pair := range pairsOf(f) {
			line += "  " + s.paint(dim, pair)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := fmt.Fprintln(s.out, line)
	return err
}

// head begins a line.
func head(at time.Time, level zapcore.Level, s *screen) string {
	colour := map[zapcore.Level]string{zapcore.DebugLevel: dim, zapcore.InfoLevel: plain, zapcore.WarnLevel: yellow}[level]
	return at.Format(time.TimeOnly) + " " + s.paint(cmp.Or(colour, red), fmt.Sprintf("%-9s", level.CapitalString())) + " "
}

// Colours, as escape sequences.
const (
	plain  = "0"
	dim    = "2"
	red    = "31"
	yellow = "33"
)

func (s *screen) paint(colour, text string) string {
	if !s.options.Colour || colour == "" || colour == plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
