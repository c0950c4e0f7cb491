package facts

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

func TestFactsHaveUnits(t *testing.T) {
	for _, test := range []struct {
		m    proto.Message
		want []Row
	}{
		{
			&resourceusage.POSIXResourceUsage{
				MaximumResidentSetSize: 30 << 20, UserTime: durationpb.New(1500 * time.Millisecond), PageFaults: 7,
			},
			[]Row{{"user time", "1.5s"}, {"maximum resident set size", "30 MiB"}, {"page faults", "7"}},
		},
		{
			&resourceusage.FilePoolResourceUsage{FilesCreated: 2, FilesSizeBytesPeak: 20480, WritesSizeBytes: 512},
			[]Row{{"files created", "2"}, {"files size bytes peak", "20 KiB"}, {"writes size bytes", "512 B"}},
		},
	} {
		if got := Of(test.m).Rows; !slices.Equal(got, test.want) {
			t.Errorf("rows %q, want %q", got, test.want)
		}
	}
}
