package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
)

// Config holds the times and limits of a scheduler. The zero value of a field means its default.
type Config struct {
	// ExecutionTimeout is the timeout of actions that ask for none. Default 1h.
	ExecutionTimeout time.Duration `tuning:"default_timeout" group:"Scheduling" unit:"TIME" default:"1h" above:"0" doc:"Timeout of actions for which the client sets none"`
	// MaxExecutionTimeout is the longest timeout of an action; a longer one is cut to it, and the
	// client gets a message. Default 24h, at least ExecutionTimeout.
	MaxExecutionTimeout time.Duration `tuning:"max_timeout" unit:"TIME" default:"24h" above:"0" doc:"Longest timeout of an action, whatever the client sets"`

	// SyncInterval is how often a busy worker must call. A worker learns of a cancellation at its
	// next call, so this is also how long a cancelled action may continue. Default 5s.
	SyncInterval time.Duration
	// IdleHold is how long the call of an idle worker is held. Default 30s.
	IdleHold time.Duration
	// ResultHold is how long the call of a worker that reports a result may be held for its next
	// action, which saves a call. Until the answer the worker does not know that the result has
	// arrived, and would report it again to a restarted scheduler. Default 0: the call is answered
	// at once.
	ResultHold time.Duration
	// WorkerSlack is how late a worker may be before it counts as dead. It also covers the
	// difference between the clocks of worker and scheduler. Default 25s.
	WorkerSlack time.Duration `tuning:"worker_slack" unit:"TIME" default:"25s" above:"0" doc:"Time without a call after which a worker counts as lost; busy workers call every 5s. At most 10s after its connection has broken"`
	// DisconnectSlack is how long a worker whose connection has broken may take to call again, if
	// that is earlier than its other deadline. It detects a program that dies; WorkerSlack detects
	// a machine that hangs. Default 10s: twice SyncInterval, because a busy worker learns of the
	// broken connection at its next call.
	DisconnectSlack time.Duration
	// Settle is how long after the first event no worker gets an action. In that time workers with
	// actions from before a restart can report them, so that no action is started twice. Default 0:
	// there is no earlier scheduler.
	Settle time.Duration `tuning:"settle" unit:"TIME" default:"5s" min:"0" doc:"Time after the start in which workers can report their running actions, before the scheduler starts new ones"`
	// Queues configure how operations share workers. The first that matches a pool applies to it;
	// without a match DefaultLevels does. The contents are read-only.
	Queues []levels.QueueConfig
	// Sizes declare size classes that may have no worker for a while, each platform once. The contents
	// are read-only.
	Sizes []Sizes
	// SizeExponent is how much slower an action may be on a smaller size class, as in
	// sizeclass.Options: it determines how long an action waits before it takes an idle worker of a
	// larger class. Default 0.5; between 0 and 1.
	SizeExponent float64
	// Quotas define the workers that instance names share by quotas; see PutQuota. In a pool of
	// such workers, instance names are the first level, whatever Queues has.
	Quotas quota.Config
	// PreemptionDelay is how long an action of an instance below its minimum waits before other
	// actions are chosen to be stopped for it. Default 10s.
	PreemptionDelay time.Duration
	// PreemptionGrace is how long these actions may then still run to their end. A worker that may
	// have to stop calls at least as often. Default 5s.
	PreemptionGrace time.Duration
	// MaxPreemptions is how often the same action may be stopped this way. Default 3.
	MaxPreemptions int
	// ActionProperties are the names of platform properties about how an action runs, not where.
	// They are not matched: no worker needs them. None by default.
	ActionProperties []string `tuning:"action_properties" unit:"NAMES" doc:"Platform properties about how an action runs, not where; workers need not have them"`
	// Match defines which workers may run an action. Default MatchOffered.
	Match Match `flag:"match" group:"Scheduling" oneof:"offered exact" default:"offered" doc:"Workers that may run an action: offered, those with all its platform properties; exact, those with exactly these properties"`
	// Apart: an operation never gets a run that may have been for another instance name.
	// Buildbarn's workers report which action they run, but not for which instance name. So their
	// runs from before a restart are stopped and repeated, and if they were lost, their late
	// results are not used.
	Apart bool
	// MaxAttempts is how many runs of an action may end without a result, because its worker was lost
	// or could not run it, before the action fails. Default 3.
	MaxAttempts int `tuning:"max_attempts" unit:"NUMBER" default:"3" min:"1" doc:"Number of runs that an action may lose, with their workers or by errors of these, before it fails"`

	// SuspendAfter is the number of consecutive failures, not caused by the actions, after which a
	// worker gets no actions for a while, unless most other workers fail, too. Default 5.
	SuspendAfter int `tuning:"suspend_after" unit:"NUMBER" default:"5" min:"1" doc:"Number of failures in a row, with errors that are not the action's, after which a worker is suspended"`

	// ClientGrace is how long operations without waiting clients, their actions, and orphan results
	// are kept for a client to come back. Default 60s.
	ClientGrace time.Duration `tuning:"client_grace" unit:"TIME" default:"1m" above:"0" doc:"Time for which an operation is kept after its client's connection has broken"`
	// MatchGrace is how long an action waits for a first worker that can serve
	// it. Default 60s.
	MatchGrace time.Duration `tuning:"match_grace" unit:"TIME" default:"1m" above:"0" doc:"Time for which an action waits if no connected worker has its platform"`
	// DrainGrace is how long an action waits if operators have drained all workers that could run
	// it. Default 24h.
	DrainGrace time.Duration `tuning:"drain_grace" unit:"TIME" default:"24h" above:"0" doc:"Time for which an action waits if only drained workers can run it"`
	// KeepCompleted is how long clients can still wait for a completed operation. Default 5m.
	KeepCompleted time.Duration
	// MaxCompleted limits the completed operations that are kept. Default 10000.
	MaxCompleted int
	// MaxQueued limits the total number of actions that wait for a worker. Above it, and above the
	// next two limits, Execute answers RESOURCE_EXHAUSTED. Default 1000000.
	MaxQueued int `tuning:"max_queued" unit:"NUMBER" default:"1000000" min:"1" doc:"Number of actions that may be queued; beyond that clients must retry later"`
	// MaxPerQueue limits the actions that wait for one size class of one platform, and those that
	// no worker can run. Default: as MaxQueued.
	MaxPerQueue int
	// StepEffort limits the work of one event for many tasks, in looks at a task; later events do
	// the rest. Default 6000, some milliseconds.
	StepEffort int
	// MaxPerClient limits the unfinished operations of one client (Operation.Client). Default
	// 100000.
	MaxPerClient int `tuning:"max_per_client" unit:"NUMBER" default:"100000" min:"1" doc:"Number of operations that one client, by its address, may have at once"`
}

// DefaultEffort is the default of Config.StepEffort.
const DefaultEffort = 6000

// WithDefaults returns c with the zero fields filled in, or an error that names the first invalid
// field.
func (c Config) WithDefaults() (_ Config, err error) {
	for _, f := range []struct {
		name string
		d    *time.Duration
		def  time.Duration
	}{
		{"ExecutionTimeout", &c.ExecutionTimeout, time.Hour},
		{"MaxExecutionTimeout", &c.MaxExecutionTimeout, 24 * time.Hour},
		{"SyncInterval", &c.SyncInterval, 5 * time.Second},
		{"IdleHold", &c.IdleHold, 30 * time.Second},
		{"ResultHold", &c.ResultHold, 0},
		{"WorkerSlack", &c.WorkerSlack, 25 * time.Second},
		{"DisconnectSlack", &c.DisconnectSlack, 10 * time.Second},
		{"Settle", &c.Settle, 0},
		{"PreemptionDelay", &c.PreemptionDelay, 10 * time.Second},
		{"PreemptionGrace", &c.PreemptionGrace, 5 * time.Second},
		{"ClientGrace", &c.ClientGrace, time.Minute},
		{"MatchGrace", &c.MatchGrace, time.Minute},
		{"DrainGrace", &c.DrainGrace, 24 * time.Hour},
		{"KeepCompleted", &c.KeepCompleted, 5 * time.Minute},
	} {
		if *f.d < 0 {
			return c, fmt.Errorf("scheduler config: %s is negative: %s", f.name, *f.d)
		}
		if *f.d == 0 {
			*f.d = f.def
		}
	}
	for _, f := range []struct {
		name string
		n    *int
		def  int
	}{
		{"MaxAttempts", &c.MaxAttempts, 3},
		{"SuspendAfter", &c.SuspendAfter, 5},
		{"MaxPreemptions", &c.MaxPreemptions, 3},
		{"MaxCompleted", &c.MaxCompleted, 10_000},
		{"MaxQueued", &c.MaxQueued, 1_000_000},
		{"MaxPerQueue", &c.MaxPerQueue, cmp.Or(c.MaxQueued, 1_000_000)},
		{"StepEffort", &c.StepEffort, DefaultEffort},
		{"MaxPerClient", &c.MaxPerClient, 100_000},
	} {
		if *f.n < 0 {
			return c, fmt.Errorf("scheduler config: %s is negative: %d", f.name, *f.n)
		}
		if *f.n == 0 {
			*f.n = f.def
		}
	}
	for i, q := range c.Queues {
		if err := q.Validate(); err != nil {
			return c, fmt.Errorf("scheduler config: Queues[%d]: %w", i, err)
		}
	}
	if c.Match = cmp.Or(c.Match, MatchOffered); c.Match != MatchOffered && c.Match != MatchExact {
		return c, fmt.Errorf("scheduler config: Match is %q, neither %s nor %s", c.Match, MatchOffered, MatchExact)
	}
	if c.Sizes, err = declared(c.Sizes); err != nil {
		return c, err
	}
	c.SizeExponent = cmp.Or(c.SizeExponent, spill.Exponent)
	if !(c.SizeExponent > 0 && c.SizeExponent < 1) {
		return c, fmt.Errorf("scheduler config: SizeExponent is not between 0 and 1: %g", c.SizeExponent)
	}
	if err := c.Quotas.Validate(); err != nil {
		return c, fmt.Errorf("scheduler config: Quotas: %w", err)
	}
	if c.ExecutionTimeout > c.MaxExecutionTimeout {
		return c, fmt.Errorf("scheduler config: default_timeout, %s, exceeds max_timeout, %s",
			c.ExecutionTimeout, c.MaxExecutionTimeout)
	}
	return c, nil
}

// Terms are what a Config says of a pool. Comparable: workers with unequal Terms share no pool.
type Terms struct {
	// queue is the index in Config.Queues, -1 for none; cohort is the name of a cohort, or empty.
	queue  int
	cohort string
}

// TermsOf returns the terms of a pool: from the first of Queues that matches it, and from its
// cohort.
func (c Config) TermsOf(prefix string, platform request.Platform) (t Terms) {
	t.queue = slices.IndexFunc(c.Queues, func(q levels.QueueConfig) bool { return q.Fits(prefix, platform) })
	if cohort, ok := c.Quotas.Of(platform.Has); ok {
		t.cohort = cohort.Name
	}
	return t
}

// LevelsOf returns the levels of a pool.
func (c Config) LevelsOf(t Terms) []levels.Level {
	if t.queue < 0 {
		return levels.DefaultLevels()
	}
	return c.Queues[t.queue].Levels
}

// CohortOf returns the name of the cohort of a pool; false if it is in none.
func (c Config) CohortOf(t Terms) (name string, ok bool) { return t.cohort, t.cohort != "" }

// Claims returns the names of the claims of which levels make branches.
func (c Config) Claims() (names []string) {
	for _, q := range c.Queues {
		for _, l := range q.Levels {
			if l.Key == levels.KeyClaim && !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

// A Match defines which workers may run an action.
type Match string

// The ways to match.
const (
	// MatchOffered: workers with all properties of the action.
	MatchOffered Match = "offered"
	// MatchExact: workers with exactly the properties of the action.
	MatchExact Match = "exact"
)

// String, Set and Type make it the value of a flag.
func (m *Match) String() string { return string(*m) }

// Set parses a Match.
func (m *Match) Set(s string) error {
	if Match(s) != MatchOffered && Match(s) != MatchExact {
		return fmt.Errorf("%q is neither %s nor %s", s, MatchOffered, MatchExact)
	}
	*m = Match(s)
	return nil
}

// Type is for pflag.
func (m *Match) Type() string { return "match" }

// A Sizes declares size classes of the workers with one platform; each kind of machine that reports
// other implied properties beside it has them. Actions wait in the queue of a declared class even
// while it has no worker, for example because machines of that size start only when they are
// needed.
type Sizes struct {
	// Prefix and Platform are exactly those of the workers.
	Prefix   string            `yaml:"instance_name_prefix" doc:"instance name prefix of the workers, exactly; default none" example:"acme/app"`
	Platform map[string]string `yaml:"platform" doc:"platform properties of the workers, exactly" example:"{OSFamily: linux}"`
	// Classes are the declared classes; others exist while they have workers.
	Classes []uint32 `yaml:"classes,required" min:"1" eachmin:"1" doc:"size classes that exist even without a worker" example:"[1, 4, 8]"`
	// Startup is the time until the first worker of a class comes, for the choice of a class.
	// Default 1m.
	Startup time.Duration `yaml:"startup" default:"1m" doc:"time in which the first worker of a class starts"`
	// Patience is how long an action waits for the first worker of its class. Then it
	// takes another class that has workers, or fails. Default 10m.
	Patience time.Duration `yaml:"patience" default:"10m" doc:"time for which an action waits for the first worker of its class"`
}

// Validate returns an error if a declaration is invalid.
func (c Sizes) Validate() error {
	switch {
	case len(c.Classes) == 0:
		return fmt.Errorf("no classes are declared for %s", c.WorkerPlatform())
	case slices.Contains(c.Classes, 0):
		return fmt.Errorf("a declared class is 0: they are positive")
	case c.Startup < 0:
		return fmt.Errorf("startup is negative: %s", c.Startup)
	case c.Patience < 0:
		return fmt.Errorf("patience is negative: %s", c.Patience)
	}
	return instance.Check(c.Prefix)
}

// WorkerPlatform returns the platform of the workers.
func (c Sizes) WorkerPlatform() request.Platform {
	m := &repb.Platform{}
	for name, value := range c.Platform {
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	return request.NewPlatform(m)
}

// declared returns a copy with the zero fields filled in, or an error.
func declared(list []Sizes) ([]Sizes, error) {
	list = slices.Clone(list)
	type pool struct{ prefix, platform string }
	known := map[pool]bool{}
	for i := range list {
		c := &list[i]
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("scheduler config: Sizes[%d]: %w", i, err)
		}
		key := pool{c.Prefix, c.WorkerPlatform().Key()}
		if known[key] {
			return nil, fmt.Errorf("scheduler config: Sizes[%d]: classes of %s in %q are declared twice",
				i, c.WorkerPlatform(), c.Prefix)
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
