package scheduler

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestOutputsInline has clients ask for output files with the result, both a new and a cached one.
// A client that does not ask gets none. Files that are too large or gone are left out.
func TestOutputsInline(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		output := func(path, content string) *repb.OutputFile {
			return &repb.OutputFile{Path: path, Digest: f.storage.putBytes(digest.SHA256, []byte(content))}
		}
		gone := &repb.OutputFile{Path: "gone", Digest: digest.Of(digest.SHA256, []byte("gone")).Proto()}
		endless := &repb.OutputFile{Path: "endless", Digest: &repb.Digest{Hash: gone.Digest.Hash, SizeBytes: digest.MaxSizeBytes}}
		made := &repb.ActionResult{OutputFiles: []*repb.OutputFile{
			output("large", string(make([]byte, inlineBytes+1))), endless, output("a", "1"), output("b", "2"), output("other", "3"), gone, output("large", string(make([]byte, inlineBytes+1))),
		}}
		want := map[string]string{"a": "1", "b": "2"}
		ask := []string{"b", "a", "large", "endless", "gone", "none"}
		check := func(name string, r *repb.ExecuteResponse, want map[string]string) {
			t.Helper()
			for _, file := range r.GetResult().GetOutputFiles() {
				if got := string(file.GetContents()); got != want[file.GetPath()] {
					t.Errorf("%s: %s has %d bytes inline: %.10q", name, file.GetPath(), len(got), got)
				}
			}
			if n := len(r.GetResult().GetOutputFiles()); n != len(made.OutputFiles) {
				t.Errorf("%s: %d files", name, n)
			}
		}
		d := f.storage.action("makes")
		asks := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, InlineOutputFiles: ask})
		asks.at(repb.ExecutionStage_QUEUED)
		joins := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		joins.at(repb.ExecutionStage_QUEUED)
		w := f.worker("w")
		w.idle()
		w.completed(d, &repb.ExecuteResponse{Result: made})
		check("asked for", asks.done(), want)
		check("not asked for", joins.done(), nil)

		f.storage.results[must(digest.FromProto(digest.SHA256, d))] = made
		check("cached", f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, InlineOutputFiles: ask[:2]}).done(), want)
		check("cached, not asked for", f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).done(), nil)
	})
}
