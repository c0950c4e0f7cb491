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
	// shortestRest and longestRest bound how long a useless Peer is left alone: the first one at
	// first, then twice as long each time, until it is useful again.
	shortestRest, longestRest = time.Second, time.Minute
	// maxInVain is how many calls in a row may fetch nothing.
	maxInVain = 8
	// stallAfter is how long a call may be silent. Only the call itself waits that long.
	stallAfter = 30 * time.Second
)

// A Peer is a client of another worker's store. A Peer that was slower than storage, that failed,
// or that repeatedly had nothing is not asked for a while. It may be used concurrently.
type Peer struct {
	client *client.Client
	name   string
	log    *zap.Logger

	mu     sync.Mutex
	until  time.Time     // end of the time in which it is left alone; guarded by mu
	rest   time.Duration // how long it was left alone last; 0: it was useful since; guarded by mu
	inVain int           // calls in a row that sent nothing; guarded by mu
}

// New returns the Peer at conn, which the caller closes. name is for the log, which may be nil.
func New(conn grpc.ClientConnInterface, name string, log *zap.Logger) *Peer {
	if log == nil {
		log = zap.NewNop()
	}
	return &Peer{name: name, log: log, client: client.New(conn, client.Options{
		Logger: log, RetryFor: time.Nanosecond, StallAfter: stallAfter, BatchBytes: cas.BatchBytes, // of every Server
	})}
}

// awake reports whether it is worth asking now.
func (n *Peer) awake() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !time.Now().Before(n.until)
}

// fetch fetches for h what the Peer has of ds, asked as by as. If ctx ends and whole does not,
// storage was faster.
func (n *Peer) fetch(ctx, whole context.Context, as asker, ds []digest.Digest, h *fetch) {
	began := time.Now()
	blobs, err := h.fetchFrom(ctx, as.of(n.client), ds)
	if whole.Err() != nil || ctx.Err() != nil && time.Since(began) < headStart(0) {
		return // too early to judge the Peer
	}
	corrupt := errors.Is(err, cas.ErrCorrupt)
	if corrupt {
		n.log.Warn("a peer sent wrong bytes; they are ignored",
			zap.String("peer", n.name), zap.Error(err))
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
