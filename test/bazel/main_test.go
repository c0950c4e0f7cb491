package bazel

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs all tests concurrently: each mostly waits for its Bazel, and its Bazel for the
// farm.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
