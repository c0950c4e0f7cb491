package operator

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestOutputsNotMade runs a command that succeeds without an output that it declared: "forerunner
// operation" names it, as long as the storage has the command.
func TestOutputsNotMade(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	farm, listen := f.Up(filepath.Join(f.Dir, "data"), "--http=")
	f.Exec(listen, "--output", "made", "--output", "never/made", "--", "/bin/sh", "-c", "echo >made").Expect(1, "", "the command did not make never/made")
	var list struct{ Records []struct{ Operation string } }
	f.Eventually("there is a record", func() bool {
		return json.Unmarshal([]byte(f.Verb(listen, "history", "--json")), &list) == nil && len(list.Records) == 1
	})
	name := list.Records[0].Operation
	if said := f.Verb(listen, "operation", name); !strings.Contains(said, "outputs that the command did not make:\n  never/made\n\n") {
		f.Errorf("operation %s:\n%s", name, said)
	}
	var told map[string]any
	said := f.Verb(listen, "operation", "--json", name)
	if err := json.Unmarshal([]byte(said), &told); err != nil {
		f.Fatal(err)
	}
	if not, ok := told["not_made"].([]any); !ok || len(not) != 1 || not[0] != "never/made" {
		f.Errorf("as JSON: %v in %s", not, said)
	}
	elsewhere := freeport.Address(f.T)
	f.Start("forerunner", "operation", "--remote", listen, "--storage", elsewhere, name).Expect(1, "", "--storage "+elsewhere)
	farm.Drain()
}
