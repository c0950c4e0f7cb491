package live

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	livepb "github.com/forerunner-build/forerunner/proto/live"
)

// A teller answers calls of Tell, one after the other; the last answer is that to all further ones.
type teller struct {
	livepb.OutputsClient
	answers []codes.Code
	calls   int
}

func (f *teller) Tell(ctx context.Context, _ *livepb.Report, _ ...grpc.CallOption) (*livepb.Told, error) {
	answer := f.answers[min(f.calls, len(f.answers)-1)]
	f.calls++
	if answer == codes.DeadlineExceeded {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &livepb.Told{}, status.Error(answer, "the test's answer")
}

// TestServes has schedulers answer in turn until it is known whether they serve live output.
func TestServes(t *testing.T) {
	report := func() *livepb.Report { return &livepb.Report{} }
	for name, c := range map[string]struct {
		answers []codes.Code
		calls   int
		want    bool
	}{
		"takes it":          {[]codes.Code{codes.OK}, 1, true},
		"is not ready":      {[]codes.Code{codes.FailedPrecondition}, 1, true},
		"refuses it":        {[]codes.Code{codes.PermissionDenied}, 1, true},
		"knows it not":      {[]codes.Code{codes.Unimplemented}, 1, false},
		"restarts":          {[]codes.Code{codes.Unavailable, codes.Canceled, codes.OK}, 3, true},
		"hangs":             {[]codes.Code{codes.DeadlineExceeded, codes.FailedPrecondition}, 2, true},
		"hangs, is another": {[]codes.Code{codes.DeadlineExceeded, codes.Unimplemented}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &teller{answers: c.answers}
				if got := New(f, report, zap.NewNop()).Serves(t.Context()); got != c.want || f.calls != c.calls {
					t.Errorf("%t after %d calls, want %t after %d", got, f.calls, c.want, c.calls)
				}
			})
		})
	}
	t.Run("never answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f := &teller{answers: []codes.Code{codes.Unavailable}}
			if New(f, report, zap.NewNop()).Serves(ctx) {
				t.Error("it serves live output")
			}
			if least := int(time.Minute / maxBackoff); f.calls < least || f.calls > 2*least {
				t.Errorf("asked %d times in a minute", f.calls)
			}
		})
	})
	if !New(nil, nil, zap.NewNop()).Serves(t.Context()) {
		t.Error("nobody was asked, and it does not")
	}
}
