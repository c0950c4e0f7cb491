package operator

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestExplain runs a command with other inputs, and asks why it was not in the cache.
func TestExplain(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	farm, listen := f.Up(filepath.Join(f.Dir, "data"), "--http=")
	run := func(used, unused string) {
		f.Helper()
		f.Write("src/used.txt", used)
		f.Write("src/unused.txt", unused)
		f.Exec(listen, "--input", filepath.Join(f.Dir, "src"), "--", "/bin/cat", "used.txt").Expect(0, used)
	}
	last := ""
	latest := func() string {
		f.Helper()
		var list struct{ Records []struct{ Operation string } }
		f.Eventually("there is a record", func() bool {
			if err := json.Unmarshal([]byte(f.Verb(listen, "history", "--json", "--limit", "1")), &list); err != nil {
				f.Fatal(err)
			}
			return len(list.Records) > 0 && list.Records[0].Operation != last
		})
		last = list.Records[0].Operation
		return last
	}
	run("one", "one")
	first := latest()
	expect := func(of string, want ...string) {
		f.Helper()
		said := f.Verb(listen, "explain", of)
		for _, w := range want {
			if !strings.Contains(said, w) {
				f.Errorf("explain %s does not say %q:\n%s", of, w, said)
			}
		}
	}
	expect(first, "No other run of the same program is known here.")
	action := actionOf(f, listen)
	expect(action, first)
	expect(action[:leastDigits], first)
	f.Eventually("there is a profile", func() bool { // a worker learns after its result has gone
		return f.Start("forerunner", "profile", "--remote", listen, action).Wait() == 0
	})
	for _, name := range []string{action, action[:leastDigits], first} { // each command takes each name of an action
		f.Start("forerunner", "stats", "--remote", listen, name).Expect(1, "", "does not learn size classes") // it knows the action
		if said := f.Verb(listen, "profile", "--tree", name); !strings.Contains(said, "used.txt") {
			f.Errorf("profile %s: %s", name, said)
		}
	}
	for _, verb := range []string{"explain", "stats", "profile"} {
		f.Start("forerunner", verb, "--remote", listen, "0123456789ab").Expect(1, "", "\"forerunner history\" lists")
		f.Start("forerunner", verb, "--remote", listen, "not-an-action").Expect(2, "", "names no action")
	}
	run("two", "one")
	second := latest()
	expect(second, "Input used.txt differs and was read.", first)
	run("two", "two")
	third := latest()
	expect(third, "Input unused.txt differs and was not read.", "Only inputs differ that no known run of this command read")
	var said struct {
		Run         struct{ Operation string }
		Differences []struct{ List []struct{ Name, Read string } }
	}
	if err := json.Unmarshal([]byte(f.Verb(listen, "explain", "--json", third)), &said); err != nil || said.Run.Operation != third ||
		len(said.Differences) != 1 || said.Differences[0].List[0].Read != "no" {
		f.Errorf("as JSON: %v, %v", said, err)
	}
	f.Start("forerunner", "explain", "--remote", listen, strings.Repeat("0", 64)+"/1").Expect(1, "", "\"forerunner history\" lists")
	f.Start("forerunner", "explain", "--remote", listen, "a/b").Expect(2, "", "HASH/SIZE")
	f.Start("forerunner", "explain", "--remote", listen).Expect(2, "", "give one action")
	farm.Drain()
}

// leastDigits is how many digits of a hash pages show.
const leastDigits = 12

// actionOf returns the action of the last record.
func actionOf(f *programs.Test, listen string) string {
	f.Helper()
	var list struct{ Records []struct{ Action string } }
	if err := json.Unmarshal([]byte(f.Verb(listen, "history", "--json", "--limit", "1")), &list); err != nil || len(list.Records) != 1 {
		f.Fatalf("%v, %v", list, err)
	}
	return list.Records[0].Action
}
