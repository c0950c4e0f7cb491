package flags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// A VerifyEvery is how long a verification of content is relied on. For users 0 is "not at all"; it
// is negative for stores and input roots, for which 0 is the default.
type VerifyEvery time.Duration

var _ pflag.Value = (*VerifyEvery)(nil)

// String returns the text form.
func (v *VerifyEvery) String() string { return max(time.Duration(*v), 0).String() }

// Type returns the type of the value for pflag.
func (v *VerifyEvery) Type() string { return "duration" }

// Set parses the text form.
func (v *VerifyEvery) Set(s string) error {
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
	*v = VerifyEvery(d)
	return nil
}
