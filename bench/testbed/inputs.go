package testbed

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
)

// NewLogger returns a logger that shows warnings, because they may explain a result.
func NewLogger() (*zap.Logger, error) {
	c := zap.NewDevelopmentConfig()
	c.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	c.DisableStacktrace = true
	log, err := c.Build()
	if err != nil {
		return nil, fmt.Errorf("make logger: %w", err)
	}
	return log, nil
}

// NewCommand returns a command with one output. env has sorted NAME=VALUE pairs.
func NewCommand(args []string, made string, env ...string) *repb.Command {
	c := &repb.Command{Arguments: args, OutputPaths: []string{made}}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		c.EnvironmentVariables = append(c.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: name, Value: value})
	}
	return c
}

// SearchPath returns the folders for headers in angle brackets from the output of g++ -v.
func SearchPath(said string) (folders []string) {
	_, list, _ := strings.Cut(said, "#include <...> search starts here:\n")
	list, _, _ = strings.Cut(list, "End of search list.")
	for line := range strings.Lines(list) {
		folders = append(folders, filepath.Clean(strings.TrimSpace(line)))
	}
	return folders
}

// Output runs a program and returns its output. There must be no mount yet.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w: %.500s", name, err, exit.Stderr)
	}
	return string(out), err
}
