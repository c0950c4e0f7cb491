package intake

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestManyCallsOnOneConnection has more waiting calls than a connection may have: a build with
// thousands of jobs, or a worker with thousands of positions. The surplus must wait at the client,
// and all must be answered.
func TestManyCallsOnOneConnection(t *testing.T) {
	client, service, s := serve(t, Options{Bounds: BoundsFor(1 << 30)})
	streams := int64(s.options.Bounds.Streams)
	const more = 500
	ended := make(chan error)
	for range streams + more {
		go func() {
			_, err := client.Check(as(t, "build"), request("wait", 0))
			ended <- err
		}()
	}
	eventually(t, func() bool { return s.ledger.costs()[calls] == streams })
	close(service.release)
	for range streams + more {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyPositions has a worker of 1,000 positions wait for work over one connection: its other
// calls go on.
func TestManyPositions(t *testing.T) {
	client, service, s := serve(t, Options{Bounds: BoundsFor(1 << 30)})
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if _, err := client.Check(as(t, "worker"), request("wait", 0)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool { return s.ledger.costs()[calls] == 1000 })
	ctx, cancel := context.WithTimeout(as(t, "worker"), 2*time.Minute)
	defer cancel()
	for range 100 {
		if _, err := client.Check(ctx, request("", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	close(service.release)
	all.Wait()
}

// TestManyUploads has a build of 250 jobs over 25 connections upload 200 KB each, all at the same
// time, and ask for something else. Their caller may just begin as many uploads, and has more bytes
// of them than there is room for, as 1,000 jobs have where there is 1 GiB.
func TestManyUploads(t *testing.T) {
	const connections, jobs = 25, 10
	b := BoundsFor(256 << 20)
	if most := b.UploadsOfOne / uploadBytes; connections*jobs > most || connections*jobs < most*9/10 {
		t.Errorf("one caller may have %d uploads", most)
	}
	b.Wait, b.Stall = time.Hour, time.Hour // on a busy machine clients are slow: none of them makes room for that
	conn, s := serveConn(t, Options{Bounds: b}, &service{})
	var all sync.WaitGroup
	for i := range connections {
		own := conn
		if i > 0 {
			own = again(t, conn)
		}
		for range jobs {
			all.Go(func() {
				if err := fill(put(t, own, "build"), 2); err != nil {
					t.Error(err)
				}
				if _, err := healthpb.NewHealthClient(own).Check(as(t, "build"), request("", 100_000), grpc.WaitForReady(true)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	eventually(t, s.ledger.free)
}
