package scheduler

import (
	"context"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

const (
	// maxPeers is how many are named for one action.
	maxPeers = 3
	// maxTraits limits the records of which worker ran what.
	maxTraits = 1 << 13
	// maxCacheAddress is the length of the longest address.
	maxCacheAddress = 300
)

// peers know the stores that are likely to have an action's inputs: those of workers that recently
// ran the same command, or else others of the same build, or else of the same instance name and
// platform. All of it is a hint, which State does not know. The cost of an event is independent of
// the number of workers, and almost zero while no worker serves its store. Zero is ready for use.
// Nobody holds another lock together with mu.
type peers struct {
	mu     sync.Mutex
	caches map[string]string // addresses by worker; guarded by mu
	served map[string]int    // how many workers have an address: the positions of one do; guarded by mu
	// traits have the latest workers by their hashes; guarded by mu.
	traits *bounded.Latest[uint64, addresses]
	seed   maphash.Seed // guarded by mu
}

// addresses are addresses, the latest first; one more than are named, because the asking worker is
// among them.
type addresses [maxPeers + 1]string

// A trait is something that actions have in common.
type trait struct {
	kind           byte
	instance, name string
}

// traits returns those of an action, the one with the most in common first.
func traits(op *request.Operation) []trait {
	list := []trait{{'c', op.Instance, op.Action.GetCommandDigest().GetHash()}}
	build := op.Request.Correlated
	if build == "" {
		build = op.Request.ToolInvocation
	}
	if build != "" {
		list = append(list, trait{'b', op.Instance, build})
	}
	return append(list, trait{'p', op.Instance, op.Platform.Key()})
}

// serves takes note of the address at which a worker serves its store; empty: it does not, or is
// gone.
func (n *peers) serves(worker, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.caches[worker]
	if old == address {
		return
	}
	if n.caches == nil {
		n.caches, n.served, n.seed = map[string]string{}, map[string]int{}, maphash.MakeSeed()
		n.traits = bounded.NewLatest[uint64, addresses](maxTraits)
	}
	if n.served[old]--; n.served[old] <= 0 {
		delete(n.served, old)
	}
	delete(n.caches, worker)
	if address != "" {
		n.caches[worker] = address
		n.served[address]++
	}
}

// ran records a worker that has an action's inputs.
func (n *peers) ran(worker string, op *request.Operation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address := n.caches[worker]
	if address == "" {
		return
	}
	for _, p := range traits(op) {
		key := maphash.Comparable(n.seed, p)
		before, _ := n.traits.Peek(key)
		n.traits.Put(key, before.with(address))
	}
}

// with returns v with an address in front.
func (v addresses) with(address string) addresses {
	i := slices.Index(v[:], address)
	if i < 0 {
		i = len(v) - 1
	}
	copy(v[1:i+1], v[:i])
	v[0] = address
	return v
}

// of returns the addresses of the peers for an action.
func (n *peers) of(worker string, op *request.Operation) (addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.served) == 0 {
		return nil
	}
	own := n.caches[worker]
	for _, p := range traits(op) {
		there, _ := n.traits.Peek(maphash.Comparable(n.seed, p))
		for _, address := range there {
			if address != own && n.served[address] > 0 && !slices.Contains(addresses, address) {
				if addresses = append(addresses, address); len(addresses) == maxPeers {
					return addresses
				}
			}
		}
	}
	return addresses
}

// cacheOf returns the address of the calling worker's store; empty: it serves none to others.
func cacheOf(ctx context.Context) string {
	values := intake.Header(ctx, names.CacheHeader)
	if len(values) != 1 || len(values[0]) > maxCacheAddress {
		return ""
	}
	_, rest, _ := strings.Cut(values[0], "://")
	host, _, err := net.SplitHostPort(rest)
	if ip, notIP := netip.ParseAddr(host); err != nil || host == "" || notIP == nil && ip.IsUnspecified() {
		return ""
	}
	return values[0]
}
