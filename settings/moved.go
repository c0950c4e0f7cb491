package settings

import (
	"fmt"

	"github.com/spf13/pflag"
)

// A movedFlag is the hidden flag of a tuning setting that was a flag. It sets the setting.
type movedFlag struct {
	pflag.Value
	setting *pflag.Flag
}

// Set sets the setting, which then takes no value from the environment or the file.
func (m movedFlag) Set(text string) error {
	err := m.setting.Value.Set(text)
	m.setting.Changed = m.setting.Changed || err == nil
	return err
}

// keep registers the old flag of a moved setting. A command line with it still works, and prints
// the setting's key.
func keep(flags *pflag.FlagSet, setting *pflag.Flag) {
	old := flags.VarPF(movedFlag{setting.Value, setting}, setting.Name, "", setting.Usage)
	f := Field{Name: setting.Name}
	old.Hidden, old.NoOptDefVal = true, setting.NoOptDefVal
	old.Deprecated = fmt.Sprintf("use tuning.%s in the --config file, or the environment variable %s", f.Key(), f.Variable())
}

// isMoved reports whether a flag only sets another setting.
func isMoved(f *pflag.Flag) bool {
	_, is := f.Value.(movedFlag)
	return is
}
