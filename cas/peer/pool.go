package peer

import (
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bounded"
)

const (
	// maxPeers limits the peers of one caller, maxConnected the connections. A peer that no caller
	// named for maxIdle loses its connection.
	maxPeers, maxConnected = 3, 32
	maxIdle                = 10 * time.Minute
)

// A Pool has the connections to recently named peers. It may be used concurrently.
type Pool struct {
	dial func(address string) (*grpc.ClientConn, error) // nil: no peer is asked
	log  *zap.Logger

	mu    sync.Mutex
	known *bounded.Latest[string, *connected] // by address, the one named last last; guarded by mu
}

type connected struct {
	*Peer
	conn  *grpc.ClientConn
	named time.Time // last; guarded by Pool.mu
}

// NewPool returns a Pool that connects with dial, which must not wait for the other side. If dial
// is nil, the Pool has no peers.
func NewPool(dial func(address string) (*grpc.ClientConn, error), log *zap.Logger) *Pool {
	known := bounded.NewLatest[string, *connected](math.MaxInt) // At closes those that are too many
	return &Pool{dial: dial, log: log, known: known}
}

// At returns the peers at the first three addresses, as far as it can dial them. It does not wait
// for connections.
func (p *Pool) At(addresses []string) (asked []*Peer) {
	if p.dial == nil || len(addresses) == 0 {
		return nil
	}
	for _, address := range addresses[:min(len(addresses), maxPeers)] {
		x := p.find(address)
		if x == nil {
			conn, err := p.dial(address)
			if err != nil {
				p.log.Debug("cannot connect to a peer", zap.String("peer", address), zap.Error(err))
				continue
			}
			x = p.add(address, &connected{New(conn, address, p.log), conn, time.Now()})
		}
		asked = append(asked, x.Peer)
	}
	p.disconnect(maxIdle)
	return asked
}

// Close closes all connections. Unfinished reads from peers continue with storage.
func (p *Pool) Close() { p.disconnect(0) }

func (p *Pool) find(address string) *connected {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, ok := p.known.Get(address)
	if ok {
		x.named = time.Now()
	}
	return x
}

// add returns the peer at an address, which is x unless another call was faster.
func (p *Pool) add(address string, x *connected) *connected {
	p.mu.Lock()
	first, known := p.known.Get(address)
	if !known {
		p.known.Put(address, x)
	}
	p.mu.Unlock()
	if !known {
		return x
	}
	_ = x.conn.Close() // unused
	return first
}

// disconnect closes the connections to peers that were not named for idle and, while there are too
// many, to the peers that were named longest ago.
func (p *Pool) disconnect(idle time.Duration) {
	var gone []*connected
	p.mu.Lock()
	for {
		address, x, ok := p.known.Oldest()
		if !ok || time.Since(x.named) < idle && p.known.Len() <= maxConnected {
			break
		}
		p.known.Remove(address)
		gone = append(gone, x)
	}
	p.mu.Unlock()
	for _, x := range gone {
		_ = x.conn.Close() // all that is lost is a hint
	}
}
