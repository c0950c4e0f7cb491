package farm

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/farm/config"
)

// CheckFile returns what is wrong with a configuration file: an error that names file, line, column and field, nil
// if scheduler and worker would start with it. What is named in it, such as files of keys, is not looked at.
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
