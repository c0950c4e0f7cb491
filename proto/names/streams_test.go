package names

import "testing"

func TestParseStream(t *testing.T) {
	for resource, want := range map[string]struct {
		operation  string
		stderr, ok bool
	}{
		StreamPrefix + "operations/x" + StdoutSuffix: {"operations/x", false, true},
		StreamPrefix + "operations/x" + StderrSuffix: {"operations/x", true, true},
		"streams/x":                          {"x", false, false},
		"streams/x/stdout/y":                 {"x/stdout/y", false, false},
		"a/streams/x/stdout":                 {"", false, false},
		"blobs/" + "e3b0c44298fc1c149afb/42": {"", false, false},
		"":                                   {"", false, false},
	} {
		operation, stderr, ok := ParseStream(resource)
		if ok != want.ok || ok && (operation != want.operation || stderr != want.stderr) {
			t.Errorf("%q: operation %q, stderr %v, %v", resource, operation, stderr, ok)
		}
	}
}
