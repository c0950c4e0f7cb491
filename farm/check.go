package farm

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/farm/config"
)

// CheckFile returns an error with file, line, column and field unless scheduler and worker would
// start with a configuration file. It does not read files that the configuration names, such as
// keys.
func CheckFile(file string) error {
	f, err := config.Read(file)
	if err != nil {
		return err
	}
	s := new(Scheduler)
	set := s.Settings()
	if err := set.Tune(set.Register(pflag.NewFlagSet("", pflag.ContinueOnError)), f.Tuning); err != nil {
		return err
	}
	if err := f.Check(s.Config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
