package flags

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/settings"
)

func TestBuild(t *testing.T) {
	checkout := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "cafe"}, {Key: "vcs.time", Value: "2030-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}
	for _, test := range []struct {
		name, version, release string
		settings               []debug.BuildSetting
		want                   string
	}{
		{"nothing", "(devel)", "", nil, "unknown, commit unknown, of unknown, "},
		{"a checkout", "v0.1.0+dirty", "", checkout, "v0.1.0+dirty, commit cafe with changes, of 2030-01-02T03:04:05Z, "},
		{"an image", "(devel)", "0.1.0", nil, "0.1.0, commit unknown, of unknown, "},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := buildOf(&debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}, test.release).String()
			if want := test.want + runtime.Version(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestVersion has a program say what it is. The environment is not asked: FORERUNNER_VERSION is a
// likely name for something else.
func TestVersion(t *testing.T) {
	t.Setenv("FORERUNNER_VERSION", "1.2.3")
	for _, args := range [][]string{{"--version"}, {"version"}, {}} {
		ran := false
		program := NewCommand("program", "does it", "", settings.Of(&struct{}{}), func(*cobra.Command, []string) error { ran = true; return nil })
		var out bytes.Buffer
		program.SetOut(&out)
		program.SetArgs(args)
		if err := Execute(t.Context(), program); err != nil {
			t.Fatal(err)
		}
		if asked := len(args) > 0; ran == asked || strings.HasPrefix(out.String(), "program "+ReadBuild().String()) != asked {
			t.Errorf("%q: ran: %t, printed %q", args, ran, &out)
		}
	}
}
