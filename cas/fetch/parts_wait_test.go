package fetch

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A link has a round trip and a bandwidth, which all calls share.
type link struct {
	*storeUpstream
	data      []byte
	roundTrip time.Duration
	bandwidth int64
	wire      chan struct{} // has one place
}

func (l *link) FetchRange(ctx context.Context, _ digest.Digest, part span.Span, w io.Writer) error {
	select {
	case <-time.After(l.roundTrip):
	case <-ctx.Done():
		return ctx.Err()
	}
	for piece := range slices.Chunk(l.data[part.From:part.To], 64<<10) {
		l.wire <- struct{}{}
		time.Sleep(time.Duration(int64(len(piece)) * int64(time.Second) / l.bandwidth))
		<-l.wire
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// TestPartsSaveWaiting has a command read 2.5 MB of a file of 32 MB, in random pieces of 64 KiB. It
// logs how long the command waits, in the time of synctest: without hints, with the whole file as a
// hint, and with its parts. With parts, fewer reads may wait.
func TestPartsSaveWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves 200 MB")
	}
	const size, wanted = 32 << 20, 40
	data := servertest.Bytes(11, size)
	for _, trip := range []time.Duration{30 * time.Millisecond, 50 * time.Millisecond} {
		waits := map[string]int{}
		for _, how := range []string{"nothing", "all", "parts"} {
			synctest.Test(t, func(t *testing.T) {
				u, _ := storeNewUpstream()
				l := &link{storeUpstream: u, data: data, roundTrip: trip, bandwidth: 25e6, wire: make(chan struct{}, 1)}
				d := digest.Of(digest.SHA256, data)
				random := rand.New(rand.NewPCG(1, 2))
				var parts []span.Span
				for i := range int64(wanted) {
					from := (i*size/wanted + random.Int64N(size/wanted-65536)) &^ 0xffff
					parts = append(parts, span.Span{From: from, To: from + 65536})
				}
				s := storeOpen(t, t.TempDir(), storeOptions{})
				r := s.Through(l)
				var ahead sync.WaitGroup
				if how == "parts" {
					defer r.PrefetchRanges(t.Context(), d, parts)()
				}
				if how != "nothing" {
					ahead.Go(func() { _, _ = r.Prefetch(t.Context(), []digest.Digest{d}) })
				}
				began := time.Now()
				time.Sleep(100 * time.Millisecond) // the command starts
				a := storeOpenArriving(t, r, d)
				var stall time.Duration
				order := random.Perm(len(parts))
				for _, i := range order {
					at, p := time.Now(), make([]byte, 65536)
					if _, err := a.ReadAt(t.Context(), p, parts[i].From); err != nil || !bytes.Equal(p, data[parts[i].From:parts[i].To]) {
						t.Fatalf("read: %v", err)
					}
					if waited := time.Since(at); waited > 0 {
						waits[how]++
						stall += waited
					}
					time.Sleep(5 * time.Millisecond) // it does something with it
				}
				ran := time.Since(began)
				if err := a.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				t.Logf("%s foreseen, %s: %d of %d reads wait, %s; the command ends after %s, all is verified after %s",
					how, trip, waits[how], wanted, stall, ran, time.Since(began))
				a.Close()
				ahead.Wait()
			})
		}
		if waits["parts"] >= waits["all"] || waits["parts"] >= waits["nothing"] {
			t.Errorf("%s: reads that waited: %v", trip, waits)
		}
	}
}
