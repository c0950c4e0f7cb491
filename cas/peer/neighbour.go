package peer

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// shortestRest and longestRest bound how long a Neighbour is left alone that was of no use: the
	// first one at first, then twice as long each time, until it is of use again.
	shortestRest, longestRest = time.Second, time.Minute
	// maxInVain is how many calls in a row may bring nothing.
	maxInVain = 8
	// neighbourStall is how long a call may hear nothing. Nobody but it waits as long.
	neighbourStall = 30 * time.Second
)

// A Neighbour is the store of another worker, as a Lender serves it. Nothing is believed that it says and
// nothing depends on it: when it was slower than storage, failed, or had nothing of what it was
// asked for several times, it is left alone for a while. It may be used concurrently.
type Neighbour struct {
	client *client.Client
	name   string
	log    *zap.Logger

	mu     sync.Mutex
	until  time.Time     // it is left alone until then; guarded by mu
	rest   time.Duration // the last one; 0: it was of use since; guarded by mu
	inVain int           // calls in a row that brought nothing; guarded by mu
}

// NewNeighbour returns the Neighbour at conn, which is the caller's; name is for the log, which may be nil.
func NewNeighbour(conn grpc.ClientConnInterface, name string, log *zap.Logger) *Neighbour {
	if log == nil {
		log = zap.NewNop()
	}
	return &Neighbour{name: name, log: log, client: client.New(conn, client.Options{
		Logger: log, RetryFor: time.Nanosecond, StallAfter: neighbourStall, BatchBytes: cas.BatchBytes, // of every Lender
	})}
}

// awake reports whether it is worth asking now.
func (n *Neighbour) awake() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !time.Now().Before(n.until)
}

// bring has the Neighbour bring for h what it has of ds, asked as by as. When ctx ends that is
// because h has come to its end without it, unless whole has ended, too.
func (n *Neighbour) bring(ctx, whole context.Context, as asker, ds []digest.Digest, h *hunt) {
	began := time.Now()
	blobs, err := h.borrow(ctx, as.of(n.client), ds)
	if whole.Err() != nil || ctx.Err() != nil && time.Since(began) < headStart(0) {
		return // which says nothing of it
	}
	corrupt := errors.Is(err, cas.ErrCorrupt)
	if corrupt {
		n.log.Warn("a peer sent wrong bytes; they are ignored",
			zap.String("neighbour", n.name), zap.Error(err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inVain++
	if blobs > 0 {
		n.inVain = 0
	}
	switch fine := err == nil || errors.Is(err, cas.ErrNotFound); {
	case corrupt:
		n.rest = longestRest
	case !fine || n.inVain == maxInVain:
		n.rest = min(max(2*n.rest, shortestRest), longestRest)
	case blobs > 0:
		n.rest = 0
		return
	default:
		return
	}
	n.inVain = 0
	n.until = time.Now().Add(n.rest)
}
