package sizeclass

import (
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"
)

// Options are the options of an Analyzer. Zero values mean the defaults.
type Options struct {
	// Exponent is x: how much slower than on the largest class an action may be on a smaller one,
	// from above 0 (not at all) to below 1 (in proportion to the size). Useful values are 0.2 to
	// 0.8; default 0.5.
	Exponent float64 `yaml:"exponent" default:"0.5" above:"0" below:"1" doc:"how much slower an action may be on a smaller class: 0.2 saves time, 0.8 saves workers"`
	// TimeoutMultiplier is the multiple of the acceptable time after which an action is stopped on
	// a smaller class; default 1.5, at least 1.
	TimeoutMultiplier float64 `yaml:"timeout_multiplier" default:"1.5" min:"1" doc:"multiple of the acceptable time after which an action is stopped on a smaller class"`
	// MinTimeout is the shortest timeout on a smaller class; default 10 s.
	MinTimeout time.Duration `yaml:"min_timeout" default:"10s" above:"0" doc:"shortest timeout on a smaller class"`
	// MaxDelay is how much longer than on the largest class an action may take on a smaller one, however
	// long it takes; default 2 min.
	MaxDelay time.Duration `yaml:"max_delay" default:"2m" above:"0" doc:"how much longer than on the largest class an action may take on a smaller one"`
	// FailureCache is how long an action starts on the largest class after it failed there; default
	// 24 h.
	FailureCache time.Duration `yaml:"failure_cache" default:"24h" above:"0" doc:"time for which an action starts on the largest class after it failed there"`
	// History is how many outcomes are kept of each class; default 32.
	History int `yaml:"history" default:"32" min:"1" max:"1000" doc:"number of outcomes kept for each action and class"`
	// Plain disables all extensions of the rule (see the package), for comparisons.
	Plain bool
	// Seed changes random choices.
	Seed uint64
	// StoreTimeout bounds each call of the store; default 1 s.
	StoreTimeout time.Duration
	// Logger logs failures of the store and their end; nil logs nothing.
	Logger *zap.Logger
}

// Validate returns an error that names the first invalid field.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults returns o with the zero fields filled in, or an error that names the first
// field that makes no sense.
func (o Options) withDefaults() (Options, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"MinTimeout", &o.MinTimeout, 10 * time.Second},
		{"MaxDelay", &o.MaxDelay, 2 * time.Minute},
		{"FailureCache", &o.FailureCache, 24 * time.Hour},
		{"StoreTimeout", &o.StoreTimeout, time.Second},
	} {
		if *f.value < 0 {
			return o, fmt.Errorf("size classes: %s is negative: %s", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if o.Exponent == 0 {
		o.Exponent = 0.5
	}
	if o.TimeoutMultiplier == 0 {
		o.TimeoutMultiplier = 1.5
	}
	if o.History == 0 {
		o.History = 32
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	switch {
	case !(o.Exponent > 0 && o.Exponent < 1):
		return o, fmt.Errorf("size classes: Exponent is %g, want it between 0 and 1", o.Exponent)
	case !(o.TimeoutMultiplier >= 1) || math.IsInf(o.TimeoutMultiplier, 0):
		return o, fmt.Errorf("size classes: TimeoutMultiplier is %g, want at least 1", o.TimeoutMultiplier)
	case o.History < 1 || o.History > maxHistory:
		return o, fmt.Errorf("size classes: History is %d, want 1 to %d", o.History, maxHistory)
	}
	return o, nil
}

// maxHistory keeps records far below the limit of a store.
const maxHistory = 1000
