//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

// build has Bazel build a workspace until there are no more faults. Each build runs all actions,
// because their environment is new each time.
func (c *cluster) build(ctx context.Context, debian string) {
	workspace := bazel.Workspace(c.T)
	program := c.Write("bazel", fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/run/netns/%s %s \"$@\"\n", c.client.name, debian))
	if err := os.Chmod(program, 0o755); err != nil {
		c.Error(err)
		return
	}
	b := bazel.New(c.T, program, workspace, "--config=remote", "--jobs=8", "--remote_retries=100",
		"--remote_executor=grpc://"+c.client.at(linePort), "--remote_cache=grpc://"+c.storage.at(linePort))
	var first []string
	for ctx.Err() == nil {
		last := c.calm.Load()
		r := b.Run(c.T, "build", "//third_party/zstd", "//trees/...", "//genrules:shout_twice", "//genrules:inputless",
			fmt.Sprintf("--action_env=ROUND=%d", c.builds.Load()))
		if r.ExitCode != 0 {
			c.Errorf("build %d: exit code %d\n%s", c.builds.Load(), r.ExitCode, programs.Tail(r.Output, 50))
			return
		}
		for _, spawn := range r.Spawns { // a cache hit is one that Bazel has asked for again
			if !strings.HasPrefix(spawn.Runner, "remote") {
				c.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
			}
		}
		bazel.ExpectFile(c.T, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")
		bazel.ExpectTree(c.T, workspace)
		outputs := bazel.OutputDigests(c.T, workspace)
		if first == nil {
			first = outputs
		} else if !slices.Equal(first, outputs) {
			c.Errorf("outputs of build %d are %s, those of the first %s", c.builds.Load(), outputs, first)
		}
		c.builds.Add(1)
		c.spawns.Add(int64(len(r.Spawns)))
		if last {
			break
		}
	}
	b.Shutdown(c.T)
}
