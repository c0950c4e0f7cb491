package policy

import (
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/worker/fault"
)

func TestPlan(t *testing.T) {
	policies, err := Parse([]byte(`
policies:
  - {name: one, match: {a: "1"}, wrappers: [[env, '{{.Property "b"}}']]}
  - {name: two, match: {a: "2"}, network: on}
  - {name: rest, environment: {X: "1"}}
`))
	check(t, err)
	cases := []struct {
		platform  string // name=value, …
		o         Defaults
		noNetwork bool
		args, env string
		fault     string
	}{
		{"", Defaults{}, false, "cmd", "A=1", ""},
		{"", Defaults{Sandboxed: true, Sandbox: sandbox.Policy{NoNetwork: true}}, true, "cmd", "A=1", ""},
		{"network=on", Defaults{Sandboxed: true, Sandbox: sandbox.Policy{NoNetwork: true}}, false, "cmd", "A=1", ""},
		{"network=off", Defaults{Sandboxed: true}, true, "cmd", "A=1", ""},
		{"dockerNetwork=off", Defaults{Sandboxed: true}, true, "cmd", "A=1", ""},
		{"dockerNetwork=standard", Defaults{Sandboxed: true, Sandbox: sandbox.Policy{NoNetwork: true}}, false, "cmd", "A=1", ""},
		{"block-network=true", Defaults{Sandboxed: true}, true, "cmd", "A=1", ""},
		{"block-network=false", Defaults{Sandboxed: true, Sandbox: sandbox.Policy{NoNetwork: true}}, false, "cmd", "A=1", ""},
		{"network=on,dockerNetwork=off", Defaults{Sandboxed: true}, false, "cmd", "A=1", ""},
		{"network=maybe", Defaults{Sandboxed: true}, false, "", "", `property network is "maybe"`},
		{"block-network=maybe", Defaults{Sandboxed: true}, false, "", "", `property block-network is "maybe"`},
		{"network=off", Defaults{}, false, "", "", "without a sandbox"},
		{"a=1,b=v", Defaults{Policies: policies}, false, "/env v cmd", "A=1", ""},
		{"a=1", Defaults{Policies: policies}, false, "", "", `no platform property "b"`},
		{"a=2,network=off", Defaults{Policies: policies, Sandboxed: true}, false, "cmd", "A=1", ""},
		{"a=3", Defaults{Policies: policies}, false, "cmd", "A=1 X=1", ""},
	}
	for _, c := range cases {
		platform := platformFrom(c.platform)
		e, err := c.o.Plan([]string{"cmd"}, []string{"A=1"}, platform, 0)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || fault.Status(t.Context(), err).Code() != codes.InvalidArgument {
				t.Errorf("%s: %v, want %q", c.platform, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.platform, err)
			continue
		}
		if len(e.Args) > 1 {
			e.Args[0] = "/" + filepath.Base(e.Args[0])
		}
		if e.Sandbox.NoNetwork != c.noNetwork || strings.Join(e.Args, " ") != c.args || strings.Join(e.Env, " ") != c.env {
			t.Errorf("%s: %+v", c.platform, e)
		}
	}
}

// platformFrom reads "name=value,name=value".
func platformFrom(text string) *repb.Platform {
	p := &repb.Platform{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			p.Properties = append(p.Properties, &repb.Platform_Property{Name: name, Value: value})
		}
	}
	return p
}
