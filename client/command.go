package client

import (
	"maps"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// NewCommand makes a Command message. Outputs are paths as in REv2: relative to the working
// directory and clean; "" is the directory itself. Variables and platform properties are sorted by
// name.
func NewCommand(args, outputs []string, workingDirectory string, env map[string]string, platform Properties) *repb.Command {
	c := &repb.Command{
		Arguments: args, OutputPaths: outputs, WorkingDirectory: workingDirectory,
	}
	//lint:ignore SA1019 older schedulers read it here; the Action gets the same
	c.Platform = platform.Proto()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.EnvironmentVariables = append(c.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: name, Value: env[name]})
	}
	return c
}
