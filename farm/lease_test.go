package farm

import (
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestLeaseNeedsWhatIsShared(t *testing.T) {
	for want, s := range map[string]Scheduler{
		"--state":   {State: "bolt:/x", Storage: "grpc://h:1"},
		"--storage": {State: "redis://h:1", Storage: "dir:/x"},
		"HOST:PORT": {State: "redis://h", Storage: "grpcs://h:1"},
	} {
		s.Lease, s.Logger = "main", zap.NewNop()
		if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
