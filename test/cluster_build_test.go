//go:build cluster

package test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// build has Bazel build a workspace until there are no more faults, each time everything anew: its actions have an
// environment of their own each time.
func (c *cluster) build(ctx context.Context, bazel string) {
	workspace := bazelWorkspace(c.T)
	program := c.write("bazel", fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/run/netns/%s %s \"$@\"\n", c.client.name, bazel))
	if err := os.Chmod(program, 0o755); err != nil {
		c.Error(err)
		return
	}
	b := newBazelClient(c.T, program, workspace, "--config=remote", "--jobs=8", "--remote_retries=100",
		"--remote_executor=grpc://"+c.client.at(linePort), "--remote_cache=grpc://"+c.storage.at(linePort))
	var first []string
	for ctx.Err() == nil {
		last := c.calm.Load()
		r := b.run(c.T, "build", "//third_party/zstd", "//trees/...", "//genrules:shout_twice", "//genrules:inputless",
			fmt.Sprintf("--action_env=ROUND=%d", c.builds.Load()))
		if r.exitCode != 0 {
			c.Errorf("build %d: exit code %d\n%s", c.builds.Load(), r.exitCode, tail(r.output, 50))
			return
		}
		for _, spawn := range r.spawns { // a cache hit is one that Bazel has asked for again
			if !strings.HasPrefix(spawn.Runner, "remote") {
				c.Errorf("%v ran %s", spawn.ListedOutputs, spawn.Runner)
			}
		}
		expectFile(c.T, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")
		expectTree(c.T, workspace)
		outputs := outputDigests(c.T, workspace)
		if first == nil {
			first = outputs
		} else if !slices.Equal(first, outputs) {
			c.Errorf("outputs of build %d are %s, those of the first %s", c.builds.Load(), outputs, first)
		}
		c.builds.Add(1)
		c.spawns.Add(int64(len(r.spawns)))
		if last {
			break
		}
	}
	b.shutdown(c.T)
}
