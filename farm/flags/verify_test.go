package flags

import (
	"testing"
	"time"
)

func TestVerifyEvery(t *testing.T) {
	for given, want := range map[string]time.Duration{"0": -1, "1h": time.Hour, "24h": 24 * time.Hour} {
		var every VerifyEvery
		if err := every.Set(given); err != nil || time.Duration(every) != want {
			t.Errorf("%q is %s, %v, want %s", given, time.Duration(every), err, want)
		}
		if back, err := time.ParseDuration(given); err != nil || every.String() != back.String() {
			t.Errorf("%q shows as %s, %v", given, &every, err)
		}
	}
	var every VerifyEvery
	for _, given := range []string{"-1h", "soon"} {
		if err := every.Set(given); err == nil {
			t.Errorf("%q is taken", given)
		}
	}
}
