package worker

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// TestCommandComesWithAction gives a worker the Command with the action, another one in its place,
// and none. Only the first spares it the call for it, and none of them is in the result.
func TestCommandComesWithAction(t *testing.T) {
	needRoot(t)
	f := newFarm(t)
	for _, test := range []struct {
		why   string
		came  func(encoded []byte) []*anypb.Any
		calls int
	}{
		{"it comes", func(b []byte) []*anypb.Any {
			return []*anypb.Any{{TypeUrl: "other"}, {TypeUrl: names.CommandType, Value: b}}
		}, 0},
		{"another comes", func(b []byte) []*anypb.Any {
			b[len(b)-1]++
			return []*anypb.Any{{TypeUrl: names.CommandType, Value: b}, {TypeUrl: "other"}}
		}, 1},
		{"nothing comes", func([]byte) []*anypb.Any { return []*anypb.Any{{TypeUrl: "other"}} }, 1},
	} {
		j := f.job(t, spec{shell: "echo " + test.why})
		d, err := digest.FromProto(digest.SHA256, j.desired.GetAction().GetCommandDigest())
		check(t, err)
		encoded := []byte(f.read(t, d.Proto()))
		before := f.reads.count(d)
		j.desired.AuxiliaryMetadata = test.came(encoded)
		f.scheduler.work <- j
		r := j.result(t)
		assertOK(t, r)
		if got, want := string(r.GetResult().GetStdoutRaw()), test.why+"\n"; got != want {
			t.Errorf("%s: it printed %q", test.why, got)
		}
		if n := f.reads.count(d) - before; n != test.calls {
			t.Errorf("%s: %d calls for it, want %d", test.why, n, test.calls)
		}
		others := 0
		for _, m := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
			switch m.GetTypeUrl() {
			case names.CommandType:
				t.Errorf("%s: it is in the result", test.why)
			case "other":
				others++
			}
		}
		if others != 1 {
			t.Errorf("%s: what else came with the action is in the result %d times", test.why, others)
		}
	}
}
