package worker

import (
	"fmt"
	"runtime"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/names"
)

// isas are the names of instruction sets in REv2's platform lexicon, by Go's names.
var isas = map[string]string{
	"386": "x86-32", "amd64": "x86-64", "arm": "arm-a32", "arm64": "arm-a64", "loong64": "la64v100",
	"ppc64": "power-isa-be", "ppc64le": "power-isa-le", "riscv64": "rv64g",
}

// machine describes this machine by REv2's platform lexicon: the facts that all workers of its kind
// share. Extensions of an instruction set are not included, because machines of the same farm
// differ in them.
func machine() *repb.Platform {
	m := &repb.Platform{}
	if isa := isas[runtime.GOARCH]; isa != "" {
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: "ISA", Value: isa})
	}
	m.Properties = append(m.Properties, &repb.Platform_Property{Name: "OSFamily", Value: runtime.GOOS})
	return m
}

// hello returns the headers for a Forerunner scheduler, with facts for which the protocol has no
// field.
func (o *Options) hello(boot string) ([]string, error) {
	pairs := []string{names.BootHeader, boot, names.SlotsHeader, strconv.Itoa(len(o.Launchers))}
	if o.CommandsCome {
		pairs = append(pairs, names.CommandHeader, strconv.Itoa(mostCommandBytes))
	}
	for _, h := range []struct {
		name     string
		platform *repb.Platform
	}{{names.ImpliedHeader, machine()}, {names.RequiredHeader, o.Require}} {
		if len(h.platform.GetProperties()) == 0 {
			continue
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.platform)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}
		pairs = append(pairs, h.name, string(b))
	}
	return pairs, nil
}
