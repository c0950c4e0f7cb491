package connection

import (
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/proto/names"
)

// TestBoot: the id of a worker's start is bounded, and there is only one.
func TestBoot(t *testing.T) {
	longest := strings.Repeat("x", maxBoot)
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"none":         {nil, ""},
		"one":          {[]string{"boot"}, "boot"},
		"the longest":  {[]string{longest}, longest},
		"a longer one": {[]string{longest + "x"}, ""},
		"two":          {[]string{"boot", "boot"}, ""},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{names.BootHeader: c.values})
		if got := Boot(ctx); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := Boot(t.Context()); got != "" {
		t.Errorf("a call without headers: %q", got)
	}
}
