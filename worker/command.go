package worker

import (
	"errors"
	"fmt"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/worker/outputs"
)

// A command is a checked Command message.
type command struct {
	args, env []string
	outputs.Spec
}

// parseCommand checks everything about m that needs no file system.
func parseCommand(m *repb.Command) (*command, error) {
	if len(m.GetArguments()) == 0 {
		return nil, errors.New("has no arguments")
	}
	c := &command{args: m.GetArguments()}
	for _, arg := range c.args {
		if strings.ContainsRune(arg, 0) {
			return nil, fmt.Errorf("argument %.80q contains NUL", arg)
		}
	}
	for _, v := range m.GetEnvironmentVariables() {
		if v.GetName() == "" || strings.ContainsAny(v.GetName(), "=\x00") || strings.ContainsRune(v.GetValue(), 0) {
			return nil, fmt.Errorf("environment variable %.80q is malformed", v.GetName())
		}
		c.env = append(c.env, v.GetName()+"="+v.GetValue())
	}
	var err error
	c.Spec, err = outputs.ParseSpec(m)
	return c, err
}
