package core

import (
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// A SizesConfig declares size classes of one pool. Actions are put into the queue of a declared
// class also while it has no worker, as when machines of that size are only started when they are
// needed.
type SizesConfig struct {
	// Prefix and Platform are exactly those of the workers.
	Prefix   string
	Platform map[string]string
	// Classes are declared; others are taken into account while they have workers.
	Classes []uint32
	// Startup is how long the first worker of a class takes to come, as far as the choice of a
	// class goes. Default 1m.
	Startup time.Duration
	// Patience is how long an action waits for the first worker of its class. Then it
	// takes another class that has workers, or fails. Default 10m.
	Patience time.Duration
}

// Validate returns what is wrong with a declaration.
func (c SizesConfig) Validate() error {
	switch {
	case len(c.Classes) == 0:
		return fmt.Errorf("no classes are declared for %s", c.platform())
	case slices.Contains(c.Classes, 0):
		return fmt.Errorf("a declared class is 0: they are positive")
	case c.Startup < 0:
		return fmt.Errorf("startup is negative: %s", c.Startup)
	case c.Patience < 0:
		return fmt.Errorf("patience is negative: %s", c.Patience)
	}
	return instance.Check(c.Prefix)
}

func (c SizesConfig) platform() Platform {
	m := &repb.Platform{}
	for name, value := range c.Platform {
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	return NewPlatform(m)
}

// declared returns a copy with the zero fields filled in, or what is wrong.
func declared(list []SizesConfig) ([]SizesConfig, error) {
	list = slices.Clone(list)
	known := map[poolKey]bool{}
	for i := range list {
		c := &list[i]
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("scheduler config: Sizes[%d]: %w", i, err)
		}
		key := poolKey{c.Prefix, c.platform().Key()}
		if known[key] {
			return nil, fmt.Errorf("scheduler config: Sizes[%d]: classes of %s in %q are declared twice", i, c.platform(), c.Prefix)
		}
		known[key] = true
		if c.Startup == 0 {
			c.Startup = time.Minute
		}
		if c.Patience == 0 {
			c.Patience = 10 * time.Minute
		}
	}
	return list, nil
}

// expected reports whether actions may choose a queue: it has workers, or some are to come.
func (q *queue) expected() bool { return q.served() || q.declared }
