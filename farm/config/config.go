package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
	"github.com/forerunner-build/forerunner/settings"
)

// A File is the content of a farm's configuration file. Scheduler, worker and "forerunner up" read
// the same format; a worker uses tokens, access and its tuning.
type File struct {
	Queues             []levels.QueueConfig `yaml:"queues" doc:"how operations share the workers of a pool; the first entry that matches a pool counts (docs/SCHEDULING.md)"`
	SizeClasses        []tuning.Sizes       `yaml:"size_classes" doc:"size classes that may have no worker for a while, as with autoscaling"`
	LearnSizes         sizeclass.Options    `yaml:"learn_sizes" doc:"how the scheduler chooses size classes"`
	Labels             []quota.Label        `yaml:"labels" named:"Name" doc:"labels of workers, by platform properties, for quotas" example:"{linux-x86: {OSFamily: linux, ISA: x86-64}, gpu: {pool: gpu}}"`
	Cohorts            []quota.Cohort       `yaml:"cohorts" named:"Name" doc:"workers that instance names share by quotas; \"forerunner quota put\" sets the quotas" example:"{linux: {labels: [linux-x86], unit: size_class}, gpu: {labels: [gpu], unit: slots}}"`
	Preemption         Preemption           `yaml:"preemption" doc:"when running actions are stopped for an instance name below its minimum"`
	Tokens             []auth.Issuer        `yaml:"tokens" doc:"issuers of bearer tokens (JWT); without tokens and --tls-client-ca authentication is off (docs/SECURITY.md)"`
	Access             []auth.Rule          `yaml:"access" doc:"rights of callers; a caller must match all conditions of a rule"`
	Login              login.Settings       `yaml:"login" doc:"providers whose users can log in to the scheduler's pages; rules below access give them rights (docs/SECURITY.md)"`
	OperationsBelongTo auth.Owning          `yaml:"operations_belong_to" default:"instance" doc:"who can see an operation: everybody who may execute for its instance name, or the user who started it"`
	Tuning             settings.Raw         `yaml:"tuning" doc:"settings that few farms change; each program uses those that it has"`
}

// Preemption configures when actions are stopped for others.
type Preemption struct {
	Delay  time.Duration `yaml:"delay" default:"10s" doc:"how long an action below the minimum waits before the scheduler chooses actions to stop"`
	Grace  time.Duration `yaml:"grace" default:"5s" doc:"how long a chosen action may still run and end by itself"`
	AtMost int           `yaml:"at_most" default:"3" min:"1" doc:"how often the same action may be stopped"`
}

// Read reads a configuration file; an empty name is no file. It is strict: an error names file,
// line, column and field.
func Read(file string) (*File, error) {
	f := &File{}
	if file == "" {
		return f, nil
	}
	return f, settings.Load(file, f)
}

// Validate returns an error if parts of the file contradict each other.
func (f *File) Validate() error {
	var fault *quota.Fault
	switch {
	case f.Login.On() && len(f.Access) == 0:
		return misplaced{"login", "there are no rules below access, so everybody with an account at an issuer could see everything: " +
			"say who may, such as access: [{users: ['*@example.com'], may: [execute, read, observe]}]"}
	case !errors.As(f.quotas().Validate(), &fault):
		return nil
	case fault.Cohort != "":
		return misplaced{"cohorts." + fault.Cohort, fault.Reason}
	}
	return misplaced{"labels." + fault.Label, fault.Reason}
}

// A misplaced error is one of a part of the file.
type misplaced struct{ where, reason string }

// Error returns the reason.
func (m misplaced) Error() string { return m.reason }

// Where returns the part.
func (m misplaced) Where() string { return m.where }

func (f *File) quotas() quota.Config { return quota.Config{Labels: f.Labels, Cohorts: f.Cohorts} }

// Apply adds f to the configuration of a scheduler.
func (f *File) Apply(c *tuning.Config) {
	c.Queues, c.Sizes, c.Quotas = f.Queues, f.SizeClasses, f.quotas()
	c.SizeExponent = f.LearnSizes.Exponent
	c.PreemptionDelay, c.PreemptionGrace, c.MaxPreemptions = f.Preemption.Delay, f.Preemption.Grace, f.Preemption.AtMost
}

// Authorize adds the access rules of f.
func (f *File) Authorize(o *auth.Options) {
	o.Issuers, o.Rules, o.Owning, o.LogIn = f.Tokens, f.Access, f.OperationsBelongTo, f.Login.On()
}

// Check returns an error if the scheduler's part of a file, together with the settings in c, is
// invalid, as Read does. It does not read files that the configuration names, such as keys.
func (f *File) Check(c tuning.Config) error {
	f.Apply(&c)
	if _, err := c.WithDefaults(); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	return nil
}

// Files returns a configuration file and the files that it names. It ignores errors, which the
// file's users report.
func Files(file string) []string {
	if file == "" {
		return nil
	}
	files := []string{file}
	f, _ := Read(file)
	for _, i := range f.Tokens {
		if i.KeysFile != "" {
			files = append(files, i.KeysFile)
		}
	}
	return append(files, f.Login.Files()...)
}
