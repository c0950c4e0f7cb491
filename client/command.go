package client

import (
	"maps"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// NewCommand makes a Command message. Outputs are paths as REv2 writes them: relative to the working
// directory, clean, "" for the directory itself. Variables and platform properties are sorted by name.
func NewCommand(args, outputs []string, workingDirectory string, env, platform map[string]string) *repb.Command {
	c := &repb.Command{
		Arguments: args, OutputPaths: outputs, WorkingDirectory: workingDirectory,
	}
	//lint:ignore SA1019 older schedulers read it here; the Action gets the same
	c.Platform = PlatformOf(platform)
	for _, property := range PlatformOf(env).GetProperties() {
		c.EnvironmentVariables = append(c.EnvironmentVariables, &repb.Command_EnvironmentVariable{
			Name: property.GetName(), Value: property.GetValue(),
		})
	}
	return c
}

// PlatformOf makes a Platform of name=value pairs, sorted as REv2 wants.
func PlatformOf(pairs map[string]string) *repb.Platform {
	p := &repb.Platform{}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		p.Properties = append(p.Properties, &repb.Platform_Property{Name: name, Value: pairs[name]})
	}
	return p
}
