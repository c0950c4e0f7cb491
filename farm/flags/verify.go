package flags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// A VerifyEvery is for how long content that was hashed is relied on. 0, for people, is less than 0
// for stores and input roots: these take 0 for the default.
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
