package names

import (
	"maps"
	"testing"
)

// TestPositions: the identities of all positions of a worker, of Forerunner or of Buildbarn, name one
// worker.
func TestPositions(t *testing.T) {
	for name, id := range map[string]map[string]string{
		"3": {HostKey: "a", DataKey: "/d", PositionKey: "3"},
		"7": {HostKey: "a", DataKey: "/d", ThreadKey: "7"},
		"":  {HostKey: "a", DataKey: "/d"},
	} {
		before := maps.Clone(id)
		if got := WithoutPosition(id); len(got) != 2 || got[HostKey] != "a" || got[DataKey] != "/d" {
			t.Errorf("the worker of %v is %v", id, got)
		}
		if got := Position(id); got != name || !maps.Equal(id, before) {
			t.Errorf("the position of %v is %q", id, got)
		}
	}
}
