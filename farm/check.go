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
	if err := f.Check(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	set := new(Scheduler).Settings()
	return set.Tune(set.Register(pflag.NewFlagSet("", pflag.ContinueOnError)), f.Tuning)
}
