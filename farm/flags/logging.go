package flags

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forerunner-build/forerunner/farm/console"
)

// Logging are the settings of a program's log.
type Logging struct {
	JSON  bool   `flag:"log-json" group:"General" doc:"Logs JSON lines; errors have a stack trace"`
	Level string `flag:"log-level" group:"General" oneof:"debug info warn error" default:"info" doc:"Lowest level of log lines"`
	// IsWhole: both a scheduler and a worker log here.
	IsWhole bool
}

// NewLogger returns a logger for people at a terminal, for people who read a file or, with JSON,
// for machines. It writes to standard error.
func (l Logging) NewLogger() (*zap.Logger, error) {
	level := zap.InfoLevel
	if l.Level != "" {
		var err error
		if level, err = zapcore.ParseLevel(l.Level); err != nil {
			return nil, err
		}
	}
	if !l.JSON && console.IsTerminal(os.Stderr) {
		screen := os.Stderr
		return zap.New(console.New(screen, console.Options{
			Level: level, Colour: console.WantsColour(), Columns: func() int { return console.ColumnsOf(screen) }, IsWhole: l.IsWhole,
		})), nil
	}
	config := zap.NewDevelopmentConfig()
	if l.JSON {
		config = zap.NewProductionConfig()
		config.Sampling = nil // there is a line for each action, however many there are in a second
	}
	config.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
	config.Level = zap.NewAtomicLevelAt(level)
	config.DisableStacktrace, config.DisableCaller = !l.JSON, !l.JSON
	return config.Build()
}
