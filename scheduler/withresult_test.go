package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// TestResultsComeWithReports has workers give the result of an action with the report of its end. It
// is in the action cache before the client hears of the end, whose result is the same if it cannot
// be written.
func TestResultsComeWithReports(t *testing.T) {
	instance, sha := names.InstanceHeader, "1"
	for _, test := range []struct {
		why   string
		gives []string // headers of the report
		here  bool     // the scheduler writes results
		fails bool
		put   bool
	}{
		{why: "asked for", gives: []string{instance, "", names.ResultHeader, sha}, here: true, put: true},
		{why: "it cannot be written", gives: []string{instance, "", names.ResultHeader, sha}, here: true, fails: true, put: true},
		{why: "not asked for", gives: []string{instance, ""}, here: true},
		{why: "no instance name", gives: []string{names.ResultHeader, sha}, here: true},
		{why: "no such function", gives: []string{instance, "", names.ResultHeader, "77"}, here: true},
		{why: "no function", gives: []string{instance, "", names.ResultHeader, "sha256"}, here: true},
		{why: "two functions", gives: []string{instance, "", names.ResultHeader, sha, names.ResultHeader, sha}, here: true},
		{why: "a scheduler that writes none", gives: []string{instance, "", names.ResultHeader, sha}},
	} {
		var put []digest.Digest
		var shown []string
		o := ServerOptions{Grant: func(string, digest.Digest) string { return "granted" }}
		if test.here {
			o.PutResult = func(ctx context.Context, instance string, d digest.Digest, r *repb.ActionResult) error {
				if instance != "" || r.GetExitCode() != 0 {
					t.Errorf("%s: the result of %q is %v", test.why, instance, r)
				}
				put, shown = append(put, d), metadata.ValueFromIncomingContext(ctx, names.GrantHeader)
				if test.fails {
					return errors.New("disk full")
				}
				return nil
			}
		}
		inFarm(t, o, func(t *testing.T, f *farm) {
			d := f.storage.action("cc")
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, SkipCacheLookup: true})
			s.at(repb.ExecutionStage_QUEUED)
			w := f.worker("w")
			w.idle()
			if want := []string{"granted", "1"}; !slices.Equal(w.grant, want[:len(want)-map[bool]int{false: 1}[test.here]]) {
				t.Errorf("%s: with the action came %q", test.why, w.grant)
			}
			w.gives = append(test.gives, names.GrantHeader, "shown")
			w.running(d)
			if len(put) != 0 {
				t.Errorf("%s: written before the end", test.why)
			}
			w.completed(d, success)
			want := must(digest.FromProto(digest.SHA256, d))
			if is := len(put) == 1 && put[0] == want && slices.Equal(shown, []string{"shown"}); is != test.put || !is && len(put) != 0 {
				t.Errorf("%s: written are %v with the grant %q", test.why, put, shown)
			}
			s.done()
		})
	}
}
