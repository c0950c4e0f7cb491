package worker

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

const (
	// maxPeers bounds the peers that one action asks, maxConnected the connections. A peer that the
	// scheduler did not name for peerIdle loses its connection.
	maxPeers, maxConnected = 3, 32
	peerIdle               = 10 * time.Minute
)

// peers are the workers whose stores the scheduler named. The worker asks no others.
type peers struct {
	dial func(address string) (*grpc.ClientConn, error) // nil: peers are not asked
	log  *zap.Logger

	mu    sync.Mutex
	known *lru.LRU[string, *connectedPeer] // by address, the one named last last; guarded by mu
}

type connectedPeer struct {
	*peer.Peer
	conn  *grpc.ClientConn
	named time.Time // last; guarded by peers.mu
}

func newPeers(o *Options) *peers {
	known, err := lru.NewLRU[string, *connectedPeer](math.MaxInt, nil) // at closes those that are too many
	if err != nil {
		panic(err) // the size is positive
	}
	return &peers{dial: o.DialPeer, log: o.Logger, known: known}
}

// at returns the peers at these addresses to which it can connect. It does not wait for
// connections.
func (n *peers) at(addresses []string) (asked []*peer.Peer) {
	if n.dial == nil || len(addresses) == 0 {
		return nil
	}
	for _, address := range addresses[:min(len(addresses), maxPeers)] {
		x := n.find(address)
		if x == nil {
			conn, err := n.dial(address)
			if err != nil {
				n.log.Debug("cannot connect to a peer", zap.String("peer", address), zap.Error(err))
				continue
			}
			x = n.add(address, &connectedPeer{peer.New(conn, address, n.log), conn, time.Now()})
		}
		asked = append(asked, x.Peer)
	}
	n.part(peerIdle)
	return asked
}

func (n *peers) find(address string) *connectedPeer {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.known.Get(address)
	if ok {
		x.named = time.Now()
	}
	return x
}

// add returns the peer at an address, which is x unless another call was faster.
func (n *peers) add(address string, x *connectedPeer) *connectedPeer {
	n.mu.Lock()
	first, known := n.known.Get(address)
	if !known {
		n.known.Add(address, x)
	}
	n.mu.Unlock()
	if !known {
		return x
	}
	_ = x.conn.Close() // unused
	return first
}

// part closes connections to peers that were not named for so long, and to those named longest ago
// while there are too many. Actions that still ask them continue with storage.
func (n *peers) part(idle time.Duration) {
	var gone []*connectedPeer
	n.mu.Lock()
	for {
		_, x, ok := n.known.GetOldest()
		if !ok || time.Since(x.named) < idle && n.known.Len() <= maxConnected {
			break
		}
		n.known.RemoveOldest()
		gone = append(gone, x)
	}
	n.mu.Unlock()
	for _, x := range gone {
		_ = x.conn.Close() // all that is lost is a hint
	}
}

// call synchronizes, and keeps the peers and the grant that the scheduler sent for the next start.
func (p *position) call(
	ctx context.Context, report *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, p.w.hello...)
	if address := p.w.opts.CacheAddress; address != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CacheHeader, address)
	}
	var header metadata.MD
	response, err := p.w.opts.Scheduler.Synchronize(ctx, report, grpc.Header(&header))
	p.peers, p.grant = header.Get(names.PeerHeader), strings.Join(header.Get(names.GrantHeader), "")
	return response, err
}

// readThrough returns the worker's store over peers and storage.
func (a *action) readThrough(instance string) *fetch.ReadThrough {
	asked := a.w.peers.at(a.task.peers)
	if len(asked) == 0 {
		return a.w.opts.Fetches.Through(a.storage)
	}
	a.peers = peer.NewFetcher(a.storage, asked, instance)
	return a.w.opts.Fetches.Through(a.peers)
}

// peerFields returns the log fields about peers.
func (a *action) peerFields() []zap.Field {
	if a.peers == nil {
		return nil
	}
	blobs, bytes := a.peers.FromPeers()
	a.w.metrics.peerBlobs.Add(float64(blobs))
	a.w.metrics.peerBytes.Add(float64(bytes))
	return []zap.Field{zap.Int64("neighbour_blobs", blobs), zap.Int64("neighbour_bytes", bytes)}
}
