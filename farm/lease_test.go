package farm

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/storage"
)

func TestLeaseNeedsWhatIsShared(t *testing.T) {
	for want, s := range map[string]Scheduler{
		"--state":   {State: "bolt:/x", Storage: storage.Settings{Location: "grpc://h:1"}},
		"--storage": {State: "redis://h:1", Storage: storage.Settings{Location: "dir:/x"}},
		"HOST:PORT": {State: "redis://h", Storage: storage.Settings{Location: "grpcs://h:1"}},
	} {
		s.Listen, s.Lease, s.Logger = "127.0.0.1:0", "main", zap.NewNop()
		if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
