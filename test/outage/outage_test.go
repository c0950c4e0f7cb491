// Package outage checks that real builds continue while something that they need is gone for a
// while.
package outage

import (
	"testing"

	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestOutage has one Bazel build through all of them. Five retries, the default, last for 3 s.
func TestOutage(t *testing.T) {
	c := bazel.New(t, bazel.Debian(t), bazel.Plain(t), "--config=remote", "--jobs=20", "--remote_retries=20")
	for _, test := range []struct {
		name string
		run  func(*programs.Test, *bazel.Client)
	}{
		{"restart", testRestart},
		{"takeover", testTakeover},
		{"completed meanwhile", testCompletedMeanwhile},
		{"missing blobs", testMissingBlobs},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(programs.New(t, programs.ShareFolder), c) })
	}
}
