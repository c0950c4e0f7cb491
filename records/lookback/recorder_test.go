package lookback

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// TestLongPaths wants no more of them in memory than the bound lets.
func TestLongPaths(t *testing.T) {
	seen, long := &Recorder{}, strings.Repeat("/path", 800)[1:]
	for i := range 2 * maxPathBytes / len(long) {
		seen.Look(fmt.Sprint(long, i), tree.LookUp)
	}
	if _, all := seen.looked(); all || len(seen.looks)*len(long) > maxPathBytes {
		t.Errorf("%d paths of %d bytes are kept", len(seen.looks), len(long))
	}
}
