package scheduler

import (
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// TestStats shows the statistics of an action before and after a run, under both of its digests and
// without workers, and checks that its result says where it ran and why.
func TestStats(t *testing.T) {
	store := &sizeStore{records: map[record.Key][]byte{}}
	sizes := must(sizeclass.NewAnalyzer(store, sizeclass.Options{}))
	var reduced *repb.Digest
	inFarm(t, ServerOptions{Sizes: sizes}, func(t *testing.T, f *farm) {
		var serving sync.WaitGroup
		for class, name := range map[uint32]string{1: "small", 4: "large"} {
			w := &sizedWorker{fakeWorker: f.worker(name), class: class, memory: 2.5}
			serving.Go(w.serve)
		}
		time.Sleep(time.Second)
		action := f.storage.action("much")
		request := &admin.GetSizesRequest{Action: &admin.GetSizesRequest_ActionDigest{ActionDigest: action}}
		before := asked(t, f.operator().GetSizes, request)
		if len(before.GetSizes()) != 2 || before.GetSizes()[0].GetProbability() != 0.5 || before.GetReason() == "" {
			t.Errorf("before the first run: %v", before)
		}
		for range 2 {
			resp := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: action}).done()
			if p := placementOf(resp); p.GetSizeClass() != 4 || p.GetReason() == "" || p.GetAttempt() == 0 {
				t.Errorf("the result says %v of where it ran", p)
			} else if why := "ran out of memory on size class 1"; p.GetAttempt() == 2 && p.GetReason() != why {
				t.Errorf("reason %q, want %q", p.GetReason(), why)
			}
			time.Sleep(time.Second)
		}
		after := asked(t, f.operator().GetSizes, request)
		small, large := after.GetSizes()[0], after.GetSizes()[1]
		if large.GetSucceeded() != 2 || large.GetMedian().AsDuration() != time.Second || large.GetExpected() == nil ||
			large.GetAcceptable() != nil || large.GetRuledOut() != "" {
			t.Errorf("large: %v", large)
		}
		if small.GetSucceeded() != 0 || small.GetProbability() != 0 && small.GetScore() < 1 || after.GetSizeClass() != 4 {
			t.Errorf("small: %v, choice %v", small, after)
		}
		reduced = after.GetReducedActionDigest()
		f.stop()
		serving.Wait()
	})
	inFarm(t, ServerOptions{Sizes: sizes}, func(t *testing.T, f *farm) {
		got := asked(t, f.operator().GetSizes, &admin.GetSizesRequest{
			Action: &admin.GetSizesRequest_ReducedActionDigest{ReducedActionDigest: reduced},
		})
		n := len(got.GetSizes())
		if n == 0 || got.GetSizes()[n-1].GetSucceeded() != 2 || got.GetSizes()[n-1].GetRuledOut() != "no worker" || got.GetTimeout() != nil {
			t.Errorf("without workers: %v", got)
		}
	})
}

// placementOf returns what a result says of the size class of its run.
func placementOf(resp *repb.ExecuteResponse) *runs.Placement {
	p := &runs.Placement{}
	for _, packed := range resp.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		if packed.MessageIs(p) {
			_ = packed.UnmarshalTo(p)
		}
	}
	return p
}

// TestStatsRefused names what is wrong with a question.
func TestStatsRefused(t *testing.T) {
	sizes := must(sizeclass.NewAnalyzer(&sizeStore{}, sizeclass.Options{}))
	nowhere := digest.Of(digest.SHA256, []byte("nowhere")).Proto()
	for name, c := range map[string]struct {
		sizes *sizeclass.Analyzer
		req   *admin.GetSizesRequest
		code  codes.Code
		text  string
	}{
		"not learned": {nil, &admin.GetSizesRequest{}, codes.FailedPrecondition, "does not learn"},
		"no digest":   {sizes, &admin.GetSizesRequest{}, codes.InvalidArgument, "action_digest"},
		"no action": {sizes, &admin.GetSizesRequest{
			Action: &admin.GetSizesRequest_ActionDigest{ActionDigest: nowhere},
		}, codes.FailedPrecondition, nowhere.GetHash()},
	} {
		t.Run(name, func(t *testing.T) {
			inFarm(t, ServerOptions{Sizes: c.sizes}, func(t *testing.T, f *farm) {
				_, err := f.operator().GetSizes(t.Context(), c.req)
				if s := status.Convert(err); s.Code() != c.code || !strings.Contains(s.Message(), c.text) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
