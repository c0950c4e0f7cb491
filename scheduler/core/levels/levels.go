package levels

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A Key names the fact about an operation that selects its branch in a level.
type Key string

// The keys. Some need a name, in Level.Name.
const (
	KeyInstance        Key = "instance_name"
	KeyToolInvocation  Key = "tool_invocation_id"
	KeyCorrelated      Key = "correlated_invocations_id"
	KeyMnemonic        Key = "action_mnemonic"
	KeyTarget          Key = "target_id"
	KeyConfiguration   Key = "configuration_id"
	KeyUser            Key = "user"
	KeyClaim           Key = "claim"    // name of the token's claim
	KeyProperty        Key = "property" // name of the platform property
	KeyConstant        Key = "constant" // Name: the key of all operations
	LongestKey             = 128        // bytes; longer ones are cut and hashed
	keptOfLongKey          = 64
	hexOfLongKey           = 32
	heaviest, lightest     = 1e6, 1e-6 // weights
)

// Keys returns all keys.
func Keys() []Key {
	return []Key{
		KeyInstance, KeyToolInvocation, KeyCorrelated, KeyMnemonic, KeyTarget, KeyConfiguration,
		KeyUser, KeyClaim, KeyProperty, KeyConstant,
	}
}

// Choices returns the words for a key.
func (Key) Choices() (words []string) {
	for _, k := range Keys() {
		words = append(words, string(k))
	}
	return words
}

// Named reports whether a key needs a name.
func (k Key) Named() bool { return k == KeyClaim || k == KeyProperty || k == KeyConstant }

// A Level is one level of the hierarchy in which operations share workers.
type Level struct {
	Key  Key    `yaml:"key,required" doc:"fact about an operation that selects its branch"`
	Name string `yaml:"name" doc:"name of the claim or platform property, or the constant itself; for the keys claim, property and constant"`
	// Stickiness is how long a worker may stay with a branch of this level although another one has
	// its turn. Zero: it may not stay.
	Stickiness time.Duration `yaml:"stickiness" default:"0s" doc:"time for which a worker may stay with its branch although another is next"`
	// Weights of branches, by their key; others have weight 1. From 1e-6 to 1e6.
	Weights map[string]float64 `yaml:"weights" min:"0.000001" max:"1000000" doc:"weights of branches, by their key; others have weight 1"`
}

// A QueueConfig says how operations share the workers of some pools.
type QueueConfig struct {
	// Prefix is the workers' instance name prefix, or its beginning. Platform has properties that
	// they must have. Empty: all workers.
	Prefix   string            `yaml:"instance_name_prefix" doc:"instance name prefix of the workers, or its beginning; default any" example:"acme/app"`
	Platform map[string]string `yaml:"platform" doc:"platform properties that the workers must have; default any" example:"{gpu: \"1\"}"`
	// Levels are the levels of the hierarchy, the outermost first. Without levels there is one
	// queue.
	Levels []Level `yaml:"levels,required" max:"16" doc:"keys that divide operations into branches, outermost first; [] is one queue for all" example:"[{key: user, weights: {ci: 2}}, {key: property, name: container-image}, {key: correlated_invocations_id, stickiness: 30s}]"`
}

// maxLevels limits the levels of a configuration. Quotas may need one more.
const maxLevels = 16

// DefaultLevels returns the levels of pools without a QueueConfig: instance names share workers,
// the builds of an instance name share its part, and a tool's invocations share the part of their
// build.
func DefaultLevels() []Level {
	return []Level{{Key: KeyInstance}, {Key: KeyCorrelated}, {Key: KeyToolInvocation}}
}

// Validate returns an error if a level is invalid.
func (l Level) Validate() error {
	switch {
	case !slices.Contains(Keys(), l.Key):
		return fmt.Errorf("key %q is none of %q", l.Key, Keys())
	case l.Key.Named() && l.Name == "":
		return fmt.Errorf("key %s needs a name", l.Key)
	case !l.Key.Named() && l.Name != "":
		return fmt.Errorf("key %s takes no name", l.Key)
	case l.Stickiness < 0:
		return fmt.Errorf("stickiness is negative: %s", l.Stickiness)
	}
	for key, w := range l.Weights {
		if math.IsNaN(w) || w < lightest || w > heaviest {
			return fmt.Errorf("weight of %q is %v, not from %v to %v", key, w, lightest, heaviest)
		}
	}
	return nil
}

// Validate returns an error if a configuration of queues is invalid.
func (q QueueConfig) Validate() error {
	if err := instance.Check(q.Prefix); err != nil {
		return err
	}
	if len(q.Levels) > maxLevels {
		return fmt.Errorf("there are %d levels, at most %d are possible", len(q.Levels), maxLevels)
	}
	for i, l := range q.Levels {
		if err := l.Validate(); err != nil {
			return fmt.Errorf("level %d: %w", i+1, err)
		}
	}
	return nil
}

// Fits reports whether the configuration applies to a pool.
func (q QueueConfig) Fits(prefix string, platform request.Platform) bool {
	if !instance.Below(prefix, q.Prefix) {
		return false
	}
	for name, value := range q.Platform {
		if !platform.Has(name, value) {
			return false
		}
	}
	return true
}

// NewTree returns the tree of a pool with these levels. The levels of o are ignored.
func NewTree(levels []Level, o fair.Options) *fair.Tree {
	o.Levels = nil
	for _, l := range levels {
		weights := make(map[string]float64, len(l.Weights))
		for key, w := range l.Weights {
			weights[Bounded(key)] = w
		}
		o.Levels = append(o.Levels, fair.Level{Stickiness: l.Stickiness, Weights: weights})
	}
	return fair.New(o)
}

// AppendKeys appends the keys of an operation, one for each level.
func AppendKeys(keys []string, levels []Level, op *request.Operation) []string {
	for _, l := range levels {
		keys = append(keys, Bounded(l.Of(op)))
	}
	return keys
}

// Of returns an operation's key; it is empty if the operation lacks it.
func (l Level) Of(op *request.Operation) string {
	switch l.Key {
	case KeyInstance:
		return op.Instance
	case KeyToolInvocation:
		return op.Request.ToolInvocation
	case KeyCorrelated:
		return op.Request.Correlated
	case KeyMnemonic:
		return op.Request.Mnemonic
	case KeyTarget:
		return op.Request.Target
	case KeyConfiguration:
		return op.Request.Configuration
	case KeyUser:
		return op.User
	case KeyClaim:
		return op.Claims[l.Name]
	case KeyProperty:
		return op.Platform.Value(l.Name)
	}
	return l.Name
}

// Bounded returns a key of at most LongestKey bytes. A longer key becomes its beginning and a hash,
// so that different keys stay different.
func Bounded(key string) string {
	if len(key) <= LongestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:keptOfLongKey], "") + "~" + hex.EncodeToString(sum[:])[:hexOfLongKey]
}
