package flags

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forerunner-build/forerunner/farm/console"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/printable"
)

// Logging are the settings of a program's log.
type Logging struct {
	JSON  bool   `flag:"log-json" group:"General" doc:"Logs JSON lines on a terminal, too, and the error with which the program ends"`
	Level string `flag:"log-level" group:"General" oneof:"debug info warn error" default:"info" doc:"Lowest level of log lines"`
	// IsWhole: both a scheduler and a worker log here.
	IsWhole bool
}

// NewLogger returns a logger to standard error: for people if that is a terminal, else, or with
// JSON, for machines. What libraries would print themselves goes to it, too.
func (l Logging) NewLogger() (*zap.Logger, error) {
	level := zap.InfoLevel
	if l.Level != "" {
		var err error
		if level, err = zapcore.ParseLevel(l.Level); err != nil {
			return nil, err
		}
	}
	log := l.newLogger(level)
	redirectLibraries(log)
	return log, nil
}

func (l Logging) newLogger(level zapcore.Level) *zap.Logger {
	if l.Form() == logline.ForPeople {
		screen := os.Stderr
		return zap.New(console.New(screen, console.Options{
			Level: level, Colour: console.WantsColour(), Columns: func() int { return console.ColumnsOf(screen) }, IsWhole: l.IsWhole,
		}))
	}
	// Nothing is sampled: there is a line for each action, however many there are in a second.
	form := zap.NewProductionEncoderConfig()
	form.EncodeTime = zapcore.TimeEncoderOfLayout(logline.TimeLayout)
	core := zapcore.NewCore(zapcore.NewJSONEncoder(form), zapcore.Lock(legible{os.Stderr}), level)
	return zap.New(core, zap.AddCaller(), zap.AddStacktrace(zap.ErrorLevel))
}

// A legible is a log of JSON lines, in which each character is seen.
type legible struct{ *os.File }

// Write implements io.Writer, for a whole line.
func (l legible) Write(line []byte) (int, error) {
	if _, err := l.File.Write(printable.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Form returns the form of the log.
func (l Logging) Form() logline.Form { return logline.FormOn(os.Stderr, l.JSON) }
