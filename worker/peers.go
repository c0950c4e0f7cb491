package worker

import (
	"context"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// call synchronizes, and keeps the peers and the grant that the scheduler sent for the next start.
func (p *position) call(
	ctx context.Context, report *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, p.w.hello...)
	if address := p.w.opts.CacheAddress; address != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CacheHeader, address)
	}
	if p.suffix != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, names.InstanceHeader, *p.suffix)
	}
	if here := p.w.opts.Shared.Circumstances(p.w.how); here != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CircumstancesHeader, string(here))
	}
	ctx = metadata.AppendToOutgoingContext(ctx, p.result...)
	var header metadata.MD
	response, err := p.w.opts.Scheduler.Synchronize(ctx, report, grpc.Header(&header))
	p.peers, p.grant = header.Get(names.PeerHeader), strings.Join(header.Get(names.GrantHeader), "")
	p.takesResult = len(header.Get(names.ResultHeader)) > 0
	return response, err
}

// readThrough returns the worker's store over peers and storage.
func (a *action) readThrough(instance string) *fetch.ReadThrough {
	asked := a.w.peers.At(a.task.peers)
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
	return []zap.Field{zap.Int64("peer_blobs", blobs), zap.Int64("peer_bytes", bytes)}
}
