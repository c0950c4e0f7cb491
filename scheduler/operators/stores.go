package operators

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
)

// maxStores bounds the stores of one answer.
const maxStores = 10_000

// stores shows the stores of the farm.
type stores struct {
	// own is ServerOptions.OwnStore.
	own     func() *admin.Store
	reports Reports
}

// ListStores implements admin.SchedulerServer.
func (s stores) ListStores(_ context.Context, req *admin.ListStoresRequest) (*admin.ListStoresResponse, error) {
	resp := &admin.ListStoresResponse{}
	if s.own != nil {
		resp.Stores = append(resp.Stores, s.own())
	}
	if req.GetOwn() {
		return resp, nil
	}
	// All positions of a worker report the same store.
	byWorker := map[string]*admin.Store{}
	for r := range s.reports.Reports() {
		id := names.WithoutPosition(r.GetWorker().GetWorkerId())
		byWorker[fmt.Sprint(r.GetInstanceNamePrefix(), id)] = &admin.Store{
			Worker: id, Bytes: r.GetStoreBytes(), MaxBytes: r.GetStoreMaxBytes(), Blobs: r.GetStoreBlobs(),
			Health: r.GetStoreHealth(),
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byWorker)) {
		if len(resp.Stores) < maxStores {
			resp.Stores = append(resp.Stores, byWorker[name])
		}
	}
	return resp, nil
}
