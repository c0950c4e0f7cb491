package main

import (
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// TestPrintSizes checks the table that people get.
func TestPrintSizes(t *testing.T) {
	seconds := func(s float64) *durationpb.Duration { return durationpb.New(time.Duration(s * 1e9)) }
	var out strings.Builder
	c := &adminCall{out: &out}
	err := c.printSizes(&admin.GetSizesResponse{
		ReducedActionDigest: &repb.Digest{Hash: "ab", SizeBytes: 7},
		Sizes: []*admin.SizeStats{
			{SizeClass: 1, Failed: 1, RuledOut: "ran out of memory on class 1", Timeout: seconds(10), Wait: seconds(93.4567)},
			{SizeClass: 4, Succeeded: 2, Median: seconds(1.23456), Expected: seconds(0.0123), Timeout: seconds(3600), Probability: 1, Score: 1},
		},
		SizeClass: 4, Timeout: seconds(3600), Reason: "because",
	})
	want := `reduced action ab/7
CLASS  SUCCEEDED  TIMED OUT  FAILED  MEDIAN  EXPECTED  ACCEPTABLE  TIMEOUT  WAIT   PROBABILITY  SCORE  RULED OUT
1      0          0          1       -       -         -           10s      1m33s  -            -      ran out of memory on class 1
4      2          0          0       1.23s   12ms      -           1h0m0s   -      1.00         1.00   -
size class 4, for at most 1h0m0s: because
`
	if err != nil || out.String() != want {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
}
