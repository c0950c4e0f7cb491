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
	f.Add(PositionKey, "7", "a!", "x,y=z")
	f.Add("a", "", ThreadKey, "{}")
	f.Add("a", ",", "b", "x")
	f.Add("z", ",", ",", ",")
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
		decoded := map[string]string{}
		if err := json.Unmarshal(want, &decoded); err != nil {
			t.Fatal(err)
		}
		if machine, position := Machine("acme/" + string(want)); machine != pairs(WithoutPosition(decoded), func(value string) string { return value }) || position != Position(decoded) {
			t.Errorf("the machine of %s is %q, its position %q", want, machine, position)
		}
	})
}

func TestMachine(t *testing.T) {
	for key, want := range map[string][2]string{
		WorkerKey("", map[string]string{"host": "a", "data": `/d "x"`, PositionKey: "3"}): {`data=/d "x",host=a`, "3"},
		WorkerKey("acme/web", map[string]string{"host": "a", ThreadKey: "7"}):             {"host=a", "7"},
		WorkerKey("", map[string]string{"host": "a"}):                                     {"host=a", ""},
		"data=/d,host=a": {"data=/d,host=a", ""}, "null": {"null", ""}, "": {"", ""}, "{": {"{", ""},
	} {
		machine, position := Machine(key)
		if machine != want[0] || position != want[1] {
			t.Errorf("%s: %q, %q, want %q", key, machine, position, want)
		}
	}
}
