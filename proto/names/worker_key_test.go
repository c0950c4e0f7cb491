package names

import (
	"encoding/json"
	"testing"
)

// FuzzWorkerKey holds WorkerKey to what encoding/json makes: operators' patterns and recordings
// have it.
func FuzzWorkerKey(f *testing.F) {
	f.Add("host", "a", "slot", "0")
	f.Add("b", `"`, "a", `\`)
	f.Add("<", "&", "\u2028", "\xff")
	f.Add("", "", "name", "\x7f\n")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		id := map[string]string{name1: value1, name2: value2, "pool": "a b"}
		want, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := WorkerKey("", id); got != string(want) {
			t.Errorf("key %s, want %s", got, want)
		}
		if got := WorkerKey("acme/web", id); got != "acme/web/"+string(want) {
			t.Errorf("key below a prefix: %s", got)
		}
	})
}
