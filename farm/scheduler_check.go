package farm

import (
	"time"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
	"github.com/forerunner-build/forerunner/settings"
)

// resultHold is the scheduler's ResultHold: in a farm that is busy, the next action comes sooner,
// and each costs one call less.
const resultHold = time.Second

// A checkedScheduler is what the settings of a scheduler mean. Nothing was created for it.
type checkedScheduler struct {
	scheduler tuning.Config
	sizes     sizeclass.Options
	protect   serve.Protection
	logins    *login.Logins // nil: no log-in. They are not open yet
	storage   storage.Options
}

// Check returns an error unless the settings can be used, alone and together, and the data folder is
// not of a newer version. It creates nothing.
func (s *Scheduler) Check() error {
	if _, err := s.check(); err != nil {
		return err
	}
	return datafolder.Check(s.Data)
}

// check turns the settings and the configuration file into values. Everything that can be wrong
// about settings is found here, before a folder exists, and is a settings.WrongError.
func (s *Scheduler) check() (c checkedScheduler, err error) {
	c.scheduler = s.Config
	c.scheduler.ResultHold = resultHold
	if err := serve.CheckFiles(filesOfScheduler); err != nil {
		return c, err
	}
	if err := s.Callers.Check(); err != nil {
		return c, err
	}
	file, err := config.Read(s.ConfigFile)
	if err != nil {
		return c, settings.Wrong("--config: %w", err)
	}
	if err := file.Check(s.Config); err != nil {
		return c, settings.Wrong("%w", err)
	}
	file.Apply(&c.scheduler)
	c.sizes = file.LearnSizes
	if c.logins, err = s.newLogin(file); err != nil {
		return c, err
	}
	if c.protect, err = s.protect(file, c.logins); err != nil {
		return c, err
	}
	memory, err := s.Callers.Memory.Bytes()
	if err != nil {
		return c, err
	}
	c.storage = storage.Options{
		Data: s.Data, Guarded: c.protect.Guard != nil, Disk: s.Disk, Client: s.Client, Patience: s.storagePatience(), Memory: memory,
	}
	return c, s.checkParts(c.storage)
}

// checkParts checks the settings of parts that have their own.
func (s *Scheduler) checkParts(o storage.Options) error {
	if s.Lease != "" {
		if err := s.checkLease(); err != nil {
			return err
		}
	}
	for _, check := range []func() error{
		func() error { return s.Ports.Check("--listen", s.Listen) },
		func() error { return s.Ports.CheckHTTP(s.HTTP) },
		func() error { return s.Storage.Check(o) },
		func() error { return s.State.Check(&s.Client) },
		s.Tracing.Check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// protect makes the protection of the ports.
func (s *Scheduler) protect(file *config.File, logins *login.Logins) (p serve.Protection, err error) {
	access := auth.Options{Logger: s.Logger}
	if access.RememberBytes, err = s.Callers.TokenBytes(); err != nil {
		return p, err
	}
	file.Authorize(&access)
	if logins != nil {
		access.Sessions = logins
	}
	return s.Ports.Protect(access)
}
