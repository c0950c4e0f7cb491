package scheduler

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/finished"
)

// TestCommandsComeWithActions has workers say how large a Command they take with an action, to a
// scheduler that has the storage and to one that has not.
func TestCommandsComeWithActions(t *testing.T) {
	for _, test := range []struct {
		why   string
		takes string
		here  bool
		gone  bool // the Command is not in the storage
		words int  // of the Command, of 16 bytes each; negative: it is empty
		comes bool
	}{
		{why: "large enough", takes: "4096", here: true, comes: true},
		{why: "a worker with much room", takes: "99999999999", here: true, comes: true},
		{why: "more than goes with an action", takes: "99999999999", here: true, words: mostCommand / 16},
		{why: "not asked for", here: true},
		{why: "an empty one, not asked for", here: true, words: -1},
		{why: "too small", takes: "3", here: true},
		{why: "no number", takes: "all", here: true},
		{why: "storage elsewhere", takes: "4096"},
		{why: "it is gone", takes: "4096", here: true, gone: true},
	} {
		inFarm(t, ServerOptions{StorageHere: test.here}, func(t *testing.T, f *farm) {
			d := f.storage.action("cc", func(a *repb.Action, c *repb.Command) {
				if test.words < 0 {
					c.Reset()
					a.Platform = &repb.Platform{} // or the scheduler would look at the Command
				}
				for range test.words {
					c.Arguments = append(c.Arguments, "as long as this.")
				}
			})
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, SkipCacheLookup: true})
			s.at(repb.ExecutionStage_QUEUED)
			w := f.worker("w")
			w.takes = test.takes
			if test.gone {
				f.storage.mu.Lock()
				clear(f.storage.blobs)
				f.storage.mu.Unlock()
			}
			desired := w.idle()
			also := desired.GetAuxiliaryMetadata()
			i := slices.IndexFunc(also, func(m *anypb.Any) bool { return m.GetTypeUrl() == names.CommandType })
			if comes := i >= 0; comes != test.comes {
				t.Errorf("%s: it comes: %t", test.why, comes)
			}
			named := must(digest.FromProto(digest.SHA256, desired.GetAction().GetCommandDigest()))
			if test.comes && digest.Of(digest.SHA256, also[i].GetValue()) != named {
				t.Errorf("%s: it is another one", test.why)
			}
			w.completed(d, success)
			s.done()
		})
	}
}

// TestSentCommandIsRecorded: the record of an operation takes the Command that its worker got, and
// does not read it once more.
func TestSentCommandIsRecorded(t *testing.T) {
	for _, test := range []struct {
		takes string
		reads int64
	}{{"4096", 0}, {"", 1}} {
		var store *history.Store
		var reads atomic.Int64
		storage := newFakeStorage()
		inFarmWith(t, func() ServerOptions {
			store = must(history.Open("", history.Options{}))
			return ServerOptions{StorageHere: true, Finished: finished.New(finished.Options{
				Store: store, Blobs: func(string, digest.Function) finished.Blobs {
					reads.Add(1)
					return storage
				},
			})}
		}, func(t *testing.T, f *farm) {
			d := f.storage.action("cc", func(*repb.Action, *repb.Command) {})
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d, SkipCacheLookup: true})
			s.at(repb.ExecutionStage_QUEUED)
			w := f.worker("w")
			w.takes = test.takes
			w.idle()
			w.completed(d, success)
			s.done()
			time.Sleep(time.Second) // until its record is made
			if n := store.Stats().Records; n != 1 || reads.Load() != test.reads {
				t.Errorf("a worker that takes %q bytes: %d records and %d reads for them, want %d", test.takes, n, reads.Load(), test.reads)
			}
		})
	}
}
