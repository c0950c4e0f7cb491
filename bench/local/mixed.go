package local

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// mixed is many clients with compilers and gofmt, through forerunner up with as many slots as most
	// small machines have.
	mixed                    work = "up_mixed"
	mixedClients, mixedSlots      = 200, 2
	mixedRate, mixedCPU           = "per_s", "cpu_ms"
)

// A tool is a program that reads one source and, but for gofmt, writes one output.
type tool struct {
	name, source string
	args         []string // after the program
	text         string
}

var tools = []tool{
	{"gcc", "a.c", []string{"-O1", "-c", "a.c", "-o", "out"}, "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" +
		"int main(void) { printf(\"%%d\\n\", %d); return 0; }\n"},
	{"g++", "a.cc", []string{"-O1", "-c", "a.cc", "-o", "out"}, "#include <map>\n#include <string>\n#include <vector>\n" +
		"int f(std::map<std::string, std::vector<int>>& m) { return m[\"a\"].size() + %d; }\n"},
	{"gofmt", "a.go", []string{"a.go"}, "package a\n\nconst n = %d\n\n" + strings.Repeat("func _(a, b int) int { return a*b + n }\n", 300)},
	{"go", "a.go", []string{"tool", "compile", "-p", "a", "-o", "out", "a.go"}, "package a\n\nconst n = %d\n\n" +
		strings.Repeat("func _(a, b int) int { return a*b + n }\n", 300)},
}

// storeMixed uploads n actions, which all differ in their source.
func storeMixed(ctx context.Context, storage *casclient.Client, n int) (actions []digest.Digest, err error) {
	var u testbed.Upload
	commands := make([]digest.Digest, len(tools))
	for i, t := range tools {
		program, err := exec.LookPath(t.name)
		if err != nil {
			return nil, err
		}
		command := &repb.Command{
			Arguments:            append([]string{program}, t.args...),
			EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "HOME", Value: "/tmp"}, {Name: "PATH", Value: "/usr/bin:/bin"}},
			OutputPaths:          []string{"out"},
		}
		if commands[i], err = u.Message(command); err != nil {
			return nil, err
		}
	}
	for i := range n {
		t := tools[i%len(tools)]
		root, err := u.Message(&repb.Directory{Files: []*repb.FileNode{
			{Name: t.source, Digest: u.Bytes(fmt.Appendf(nil, t.text, i)).Proto()},
		}})
		if err != nil {
			return nil, err
		}
		action, err := u.Action(commands[i%len(tools)], root)
		if err != nil {
			return nil, err
		}
		actions = append(actions, action)
	}
	return actions, u.To(ctx, storage)
}

func (b *localBench) mixedRows() []report.Row {
	c := noopCell{work: mixed, clients: mixedClients}
	return []report.Row{
		b.actionRow(c, mixedRate, "1/s", "", func(s *noopSample) float64 { return s.perSecond }),
		b.actionRow(c, mixedCPU, "ms", "farm and launchers", func(s *noopSample) float64 { return (s.worker.us + s.launchers.us) / 1000 }),
	}
}
