package scheduler

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// TestWorkersOfTwoInstances have the same identity, and do not take each other's place.
func TestWorkersOfTwoInstances(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		client := live.NewOutputsClient(f.conn)
		digests, streams := map[string]*repb.Digest{}, map[string]*stream{}
		for i, name := range []string{"acme", "globex"} {
			digests[name] = f.storage.action(name)
			streams[name] = f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: digests[name], InstanceName: name})
			streams[name].at(repb.ExecutionStage_QUEUED)
			w := f.worker("w")
			w.req.InstanceNamePrefix = name
			if got := w.idle(); !proto.Equal(got.GetActionDigest(), digests[name]) {
				t.Fatalf("the worker of %s is given %v", name, got)
			}
			id := &live.Identity{WorkerId: w.req.GetWorkerId()}
			must(client.Serve(t.Context(), &live.ServeRequest{Workers: []*live.Identity{id}, InstanceNamePrefix: name}))
			synctest.Wait()
			must(client.Tell(t.Context(), &live.Report{Worker: id, InstanceNamePrefix: name, Slots: uint32(i + 1)}))
		}
		list := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers()
		if len(list) != 2 || list[0].GetReport().GetSlots() != 1 || list[1].GetReport().GetSlots() != 2 {
			t.Errorf("workers %v", list)
		}
		for name, s := range streams {
			w := f.worker("w")
			w.req.InstanceNamePrefix = name
			w.completed(digests[name], success)
			s.done()
		}
	})
}

// TestListStores has the scheduler's own storage and a worker with two positions, which have one
// store.
func TestListStores(t *testing.T) {
	own := func() *admin.Store { return &admin.Store{Bytes: 7, Blobs: 1} }
	inFarm(t, ServerOptions{OwnStore: own}, func(t *testing.T, f *farm) {
		client := live.NewOutputsClient(f.conn)
		var ids []*live.Identity
		for _, position := range []string{"0", "1"} {
			ids = append(ids, &live.Identity{WorkerId: map[string]string{"host": "a", "position": position}})
		}
		must(client.Serve(t.Context(), &live.ServeRequest{Workers: ids}))
		synctest.Wait()
		must(client.Tell(t.Context(), &live.Report{
			Worker: ids[0], StoreBytes: 8, StoreHealth: &live.StoreHealth{DamagedBlobs: 9},
		}))
		stores := asked(t, f.operator().ListStores, &admin.ListStoresRequest{}).GetStores()
		if len(stores) != 2 || stores[0].GetBytes() != 7 || len(stores[0].GetWorker()) != 0 ||
			stores[1].GetBytes() != 8 || stores[1].GetHealth().GetDamagedBlobs() != 9 || !maps.Equal(stores[1].GetWorker(), map[string]string{"host": "a"}) {
			t.Errorf("stores %v", stores)
		}
		if stores := asked(t, f.operator().ListStores, &admin.ListStoresRequest{Own: true}).GetStores(); len(stores) != 1 {
			t.Errorf("own stores %v", stores)
		}
	})
}

// TestTell has a worker report its state, and then be lost.
func TestTell(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("a")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED)
		w := f.worker("w")
		w.idle() // until it has the action
		client := live.NewOutputsClient(f.conn)
		id := &live.Identity{WorkerId: w.req.GetWorkerId()}
		_, err := client.Tell(t.Context(), &live.Report{Worker: id, Slots: 8})
		wantStatus(t, err, codes.FailedPrecondition, "not connected for live output")
		calls, hangUp := context.WithCancel(t.Context())
		must(client.Serve(calls, &live.ServeRequest{Workers: []*live.Identity{id}}))
		synctest.Wait()
		must(client.Tell(t.Context(), &live.Report{Worker: id, Slots: 8}))
		list := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{})
		if list.GetWorkers()[0].GetReport().GetSlots() != 8 || len(list.GetLost()) != 0 {
			t.Errorf("workers %v", list)
		}
		hangUp()
		synctest.Wait()
		if r := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers()[0].GetReport(); r != nil {
			t.Errorf("after its call: %v", r)
		}
		time.Sleep(5 * time.Minute)
		list = asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{})
		queues := asked(t, f.operator().ListQueues, &admin.ListQueuesRequest{})
		if len(list.GetLost()) != 1 || list.GetLost()[0].GetIdentity()["host"] != "w" ||
			!strings.HasPrefix(list.GetLost()[0].GetAction(), d.GetHash()) || queues.GetWorkersLost() != 1 {
			t.Errorf("lost %v, %d", list.GetLost(), queues.GetWorkersLost())
		}
	})
}

// TestSlotsOfTheDead has a worker with one slot and two positions. It has one slot before it reports
// anything for pages, and after its program was killed, for as long as it is listed.
func TestSlotsOfTheDead(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		program, kill := f.client()
		for _, position := range []string{"0", "1"} {
			w := program.worker("w")
			w.req.WorkerId["position"] = position
			w.slots, w.boot = "1", "first"
			w.req.CurrentState = &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
			go func() { _, _ = w.sync(t.Context()) }() // until it is killed
		}
		synctest.Wait()
		expect := func(when string) {
			t.Helper()
			list := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers()
			if len(list) != 1 || list[0].GetSlots() != 1 {
				t.Errorf("%s: workers %v", when, list)
			}
			if q := asked(t, f.operator().ListQueues, &admin.ListQueuesRequest{}).GetQueues(); len(q) != 1 || q[0].GetSlots() != 1 {
				t.Errorf("%s: queues %v", when, q)
			}
		}
		expect("before it reports")
		kill()
		synctest.Wait()
		expect("when it was killed")
		again := f.worker("w")
		again.req.WorkerId["position"] = "0"
		again.slots, again.boot = "1", "second"
		again.req.CurrentState = &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
		calls, end := context.WithCancel(t.Context())
		go func() { _, _ = again.sync(calls) }()
		synctest.Wait()
		expect("when it was started again")
		end()
	})
}
