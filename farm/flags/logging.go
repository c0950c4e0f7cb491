package flags

import (
	"errors"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forerunner-build/forerunner/farm/console"
	"github.com/forerunner-build/forerunner/logline"
)

// Logging are the settings of a program's log.
type Logging struct {
	JSON  bool   `flag:"log-json" group:"General" doc:"Logs JSON lines on a terminal, too, and the error with which the program ends"`
	Level string `flag:"log-level" group:"General" oneof:"debug info warn error" default:"info" doc:"Lowest level of log lines"`
	// IsWhole: both a scheduler and a worker log here.
	IsWhole bool
}

// NewLogger returns a logger to standard error: for people if that is a terminal, else, or with
// JSON, for machines.
func (l Logging) NewLogger() (*zap.Logger, error) {
	level := zap.InfoLevel
	if l.Level != "" {
		var err error
		if level, err = zapcore.ParseLevel(l.Level); err != nil {
			return nil, err
		}
	}
	if l.isForPeople() {
		screen := os.Stderr
		return zap.New(console.New(screen, console.Options{
			Level: level, Colour: console.WantsColour(), Columns: func() int { return console.ColumnsOf(screen) }, IsWhole: l.IsWhole,
		})), nil
	}
	config := zap.NewProductionConfig()
	config.Sampling = nil // there is a line for each action, however many there are in a second
	config.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout(logline.TimeLayout)
	config.Level = zap.NewAtomicLevelAt(level)
	return config.Build()
}

// isForPeople reports whether the log is for people and not JSON.
func (l Logging) isForPeople() bool { return !l.JSON && logline.IsTerminal(os.Stderr) }

// Last has the error with which a program ends be in its log, with JSON: no other lines are among
// those of the log. It returns the error.
func (l Logging) Last(log *zap.Logger, err error) error {
	if err == nil || !l.JSON {
		return err
	}
	log.Error("program ends", zap.Error(err))
	return &loggedError{err}
}

// A loggedError is in the log.
type loggedError struct{ error }

func (e *loggedError) Unwrap() error { return e.error }

// IsLogged reports whether an error is in the log, so that it need not be printed.
func IsLogged(err error) bool {
	logged := (*loggedError)(nil)
	return errors.As(err, &logged)
}
