package facts

import (
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// NotMade returns the declared outputs that a successful command did not make: Bazel fails if it
// needs them. There are none, too, if the command is nil or the record does not have all outputs.
func NotMade(r *historypb.Record, command *repb.Command) (missing []string) {
	if r.GetOutcome() != historypb.Outcome_SUCCEEDED || int(r.GetAllOutputs()) != len(r.GetOutputs()) {
		return nil
	}
	//lint:ignore SA1019 deprecated is what old clients send
	declared := slices.Concat(command.GetOutputPaths(), command.GetOutputFiles(), command.GetOutputDirectories())
	for _, path := range declared {
		if !slices.ContainsFunc(r.GetOutputs(), func(o *historypb.Output) bool { return o.GetPath() == path }) && !slices.Contains(missing, path) {
			missing = append(missing, path)
		}
	}
	return missing
}
