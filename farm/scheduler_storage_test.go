package farm

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/farm/scrub"
)

// TestStorageFlags has flags that contradict each other.
func TestStorageFlags(t *testing.T) {
	s := &Scheduler{ActionCache: "grpc://h:1", Data: t.TempDir()}
	if _, err := s.openStorage(t.Context(), scrub.Load{}, false); err == nil || !strings.Contains(err.Error(), "tuning.action_cache: it is embedded") {
		t.Errorf("an action cache beside embedded storage: %v", err)
	}
	s = &Scheduler{CacheWrites: CacheWritesClients, Data: t.TempDir()}
	if _, err := s.openStorage(t.Context(), scrub.Load{}, true); err == nil || !strings.Contains(err.Error(), "--cache-writes: where callers are known") {
		t.Errorf("writes of clients beside access rules: %v", err)
	}
	s.Storage = "grpc://h:1"
	if _, err := s.openStorage(t.Context(), scrub.Load{}, false); err == nil || !strings.Contains(err.Error(), "--cache-writes: the action cache is elsewhere") {
		t.Errorf("writes of clients to storage elsewhere: %v", err)
	}
}
