package worker

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

const (
	// maxNeighbours is how many are asked for one action, maxConnected to how many there are connections. One
	// that was not named for neighbourIdle loses its own.
	maxNeighbours, maxConnected = 3, 32
	neighbourIdle               = 10 * time.Minute
)

// neighbours are the workers whose stores were named by the scheduler; nobody else's are asked.
type neighbours struct {
	dial func(address string) (*grpc.ClientConn, error) // nil: nobody is asked
	log  *zap.Logger

	mu    sync.Mutex
	known map[string]*neighbour // by address; guarded by mu
}

type neighbour struct {
	*peer.Peer
	conn  *grpc.ClientConn
	named time.Time // last; guarded by neighbours.mu
}

func newNeighbours(o *Options) *neighbours {
	return &neighbours{dial: o.DialNeighbour, log: o.Logger, known: map[string]*neighbour{}}
}

// at returns those at addresses, as far as they can be asked. It waits for none of them.
func (n *neighbours) at(addresses []string) (near []*peer.Peer) {
	if n.dial == nil || len(addresses) == 0 {
		return nil
	}
	for _, address := range addresses[:min(len(addresses), maxNeighbours)] {
		x := n.find(address)
		if x == nil {
			conn, err := n.dial(address)
			if err != nil {
				n.log.Debug("neighbour is not asked", zap.String("neighbour", address), zap.Error(err))
				continue
			}
			x = n.add(address, &neighbour{peer.New(conn, address, n.log), conn, time.Now()})
		}
		near = append(near, x.Peer)
	}
	n.part(neighbourIdle)
	return near
}

func (n *neighbours) find(address string) *neighbour {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.known[address]
	if x != nil {
		x.named = time.Now()
	}
	return x
}

// add returns the neighbour at an address, which is x unless somebody else was faster.
func (n *neighbours) add(address string, x *neighbour) *neighbour {
	n.mu.Lock()
	first := n.known[address]
	if first == nil {
		n.known[address] = x
	}
	n.mu.Unlock()
	if first == nil {
		return x
	}
	_ = x.conn.Close() // nobody used it
	return first
}

// part ends the connections to those that were not named for so long, and to those named longest ago while
// there are too many. Actions that still ask them go on with storage.
func (n *neighbours) part(idle time.Duration) {
	var gone []*neighbour
	n.mu.Lock()
	for address, x := range n.known {
		if time.Since(x.named) >= idle {
			gone = append(gone, x)
			delete(n.known, address)
		}
	}
	for len(n.known) > maxConnected {
		oldest := ""
		for address, x := range n.known {
			if oldest == "" || x.named.Before(n.known[oldest].named) {
				oldest = address
			}
		}
		gone = append(gone, n.known[oldest])
		delete(n.known, oldest)
	}
	n.mu.Unlock()
	for _, x := range gone {
		_ = x.conn.Close() // all that is lost is a hint
	}
}

// call synchronizes, and keeps what the scheduler says of neighbours and grants for the next start.
func (p *position) call(
	ctx context.Context, report *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	if address := p.w.opts.CacheAddress; address != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CacheHeader, address)
	}
	var header metadata.MD
	response, err := p.w.opts.Scheduler.Synchronize(ctx, report, grpc.Header(&header))
	p.near, p.grant = header.Get(names.NeighbourHeader), strings.Join(header.Get(names.GrantHeader), "")
	return response, err
}

// readThrough returns the worker's store over storage and, before that, neighbours.
func (a *action) readThrough(instance string) *fetch.ReadThrough {
	near := a.w.neighbours.at(a.task.near)
	if len(near) == 0 {
		return a.w.opts.Fetches.Through(a.storage)
	}
	a.near = peer.NewFetcher(a.storage, near, instance)
	return a.w.opts.Fetches.Through(a.near)
}

// borrowedFields are for the log line of the action, which is at its end.
func (a *action) borrowedFields() []zap.Field {
	if a.near == nil {
		return nil
	}
	blobs, bytes := a.near.FromPeers()
	a.w.metrics.borrowedBlobs.Add(float64(blobs))
	a.w.metrics.borrowedBytes.Add(float64(bytes))
	return []zap.Field{zap.Int64("neighbour_blobs", blobs), zap.Int64("neighbour_bytes", bytes)}
}
