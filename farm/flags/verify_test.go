package flags

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestVerifyEvery(t *testing.T) {
	for given, want := range map[string]time.Duration{"": 24 * time.Hour, "0": -1, "1h": time.Hour} {
		var every time.Duration
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		VerifyEvery(f, &every)
		if given != "" {
			if err := f.Set("verify-every", given); err != nil {
				t.Fatal(err)
			}
		}
		if every != want {
			t.Errorf("%q is %s, want %s", given, every, want)
		}
	}
	var every time.Duration
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	VerifyEvery(f, &every)
	for _, given := range []string{"-1h", "soon"} {
		if err := f.Set("verify-every", given); err == nil {
			t.Errorf("%q is taken", given)
		}
	}
	if got := f.Lookup("verify-every").Value.String(); got != "24h0m0s" {
		t.Errorf("it shows as %s", got)
	}
}
