package farm

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/farm/serve"
)

// TestQueuedActionsAreCharged has a caller queue long Actions until they exceed the memory for
// them. Further ones must be refused until he cancels some.
func TestQueuedActionsAreCharged(t *testing.T) {
	f := guard(t, &Scheduler{Callers: serve.Callers{Memory: serve.Memory{Limit: "60M"}, ReceiveTimeout: 200 * time.Millisecond}}, "")
	a := asker{T: t, conn: f.dial("user")}
	root, command := a.put(&repb.Directory{}), a.put(&repb.Command{Arguments: []string{"true"}})
	queue := func(n uint64) (giveUp context.CancelFunc, err error) {
		action := a.put(&repb.Action{
			CommandDigest: command, InputRootDigest: root, Platform: &repb.Platform{},
			Salt: binary.LittleEndian.AppendUint64(bytes.Repeat([]byte("x"), 60_000), n),
		})
		ctx, cancel := context.WithCancel(t.Context())
		s, err := repb.NewExecutionClient(a.conn).Execute(ctx, &repb.ExecuteRequest{ActionDigest: action})
		if err == nil {
			_, err = s.Recv()
		}
		return cancel, err
	}
	var queued []context.CancelFunc
	for len(queued) < 200 {
		giveUp, err := queue(uint64(len(queued)))
		if status.Code(err) == codes.ResourceExhausted {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, giveUp)
	}
	if n := len(queued); n < 40 || n > 90 { // one caller has 10 MiB, and an Action counts twice
		t.Errorf("%d actions are queued", n)
	}
	for _, giveUp := range queued[:20] {
		giveUp()
	}
	for end := time.Now().Add(time.Minute); ; {
		_, err := queue(1000)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("when some are given up: %v", err)
		}
	}
}
