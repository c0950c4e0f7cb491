package flags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// defaultVerifyEvery is --verify-every if nobody sets it.
const defaultVerifyEvery = 24 * time.Hour

// VerifyEvery registers the flag that says for how long content counts as verified.
func VerifyEvery(f *pflag.FlagSet, every *time.Duration) {
	*every = defaultVerifyEvery
	f.Var((*verifyEvery)(every), "verify-every", "`time` for which content that was hashed is relied on, unless its file changes; "+
		"0: hash it after each use")
}

// A verifyEvery is a time of which 0, for people, is less than 0 for stores and input roots: these
// take 0 for the default.
type verifyEvery time.Duration

var _ pflag.Value = (*verifyEvery)(nil)

func (v *verifyEvery) String() string { return max(time.Duration(*v), 0).String() }

// Type says to pflag what the value is.
func (v *verifyEvery) Type() string { return "duration" }

// Set takes what the flag says.
func (v *verifyEvery) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%s is less than nothing", d)
	}
	if d == 0 {
		d = -1
	}
	*v = verifyEvery(d)
	return nil
}
