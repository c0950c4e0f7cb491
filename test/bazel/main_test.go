package bazel

import (
	"flag"
	"os"
	"testing"
)

// TestMain has all tests run at the same time: each waits much for its Bazel, and its Bazel for the
// farm.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
