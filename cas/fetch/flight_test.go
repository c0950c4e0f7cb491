package fetch

import (
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestWhoWaits: a flight is in the queue if a caller wants it and it has no batch; an arrival is in
// the queue if a caller other than PrefetchRanges wants the rest.
func TestWhoWaits(t *testing.T) {
	for name, c := range map[string]struct {
		fl       flight
		behind   bool
		waits    bool
		wantRest rest
	}{
		"asked for":                 {flight{askers: 1}, false, true, restUnwanted},
		"nobody asks":               {flight{}, false, false, restUnwanted},
		"has a batch":               {flight{askers: 1, batch: &batch{}}, false, false, restUnwanted},
		"of the other queue":        {flight{askers: 1, behind: true}, false, false, restUnwanted},
		"behind":                    {flight{askers: 1, behind: true}, true, true, restUnwanted},
		"not behind any more":       {flight{askers: 1}, true, false, restUnwanted},
		"the rest is wanted":        {flight{askers: 2, partial: 1, rest: restQueued, batch: &batch{}}, true, true, restQueued},
		"only parts are wanted":     {flight{askers: 1, partial: 1, rest: restQueued, batch: &batch{}}, true, false, restUnwanted},
		"nobody wants it any more":  {flight{rest: restQueued, batch: &batch{}}, true, false, restUnwanted},
		"parts, and it comes whole": {flight{askers: 1, partial: 1, rest: restComes, batch: &batch{}}, true, false, restComes},
	} {
		if got := c.fl.waitsLocked(c.behind); got != c.waits || c.fl.rest != c.wantRest {
			t.Errorf("%s: it waits %t, its rest is %d; want %t, %d", name, got, c.fl.rest, c.waits, c.wantRest)
		}
	}
}

// TestHolds: a batch accepts blobs that fit into one message, whatever sizes they claim.
func TestHolds(t *testing.T) {
	of := func(n int, size int64) *batch {
		b := &batch{digests: make([]digest.Digest, n)}
		for i := range b.digests {
			var err error
			if b.digests[i], err = digest.FromHash(digest.SHA256, [digest.HashSize]byte{}, size); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	for name, c := range map[string]struct {
		b    *batch
		want bool
	}{
		"one":                  {of(1, 10), false},
		"two":                  {of(2, 10), true},
		"a full message":       {of(2, cas.BatchBytes/2), true},
		"more than a message":  {of(2, cas.BatchBytes/2+1), false},
		"a sum that overflows": {of(1<<64/digest.MaxSizeBytes, digest.MaxSizeBytes), false},
	} {
		if got := c.b.holds(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWhoLeaves: a flight without callers is not found by the next caller, and its call is
// cancelled if none of its other flights has callers.
func TestWhoLeaves(t *testing.T) {
	d := digest.Of(digest.SHA256, []byte("text"))
	for name, c := range map[string]struct {
		askers           int // of the flight, before one leaves
		inBatch, ended   bool
		others           int // callers that wait for other flights of the batch
		found, cancelled bool
	}{
		"the last, in a queue":         {askers: 1},
		"one of two, in a queue":       {askers: 2, found: true},
		"the last, of a call":          {askers: 1, inBatch: true, cancelled: true},
		"one of two, of a call":        {askers: 2, inBatch: true, found: true},
		"the last, while others wait":  {askers: 1, inBatch: true, others: 1, found: true},
		"the last, when it has ended":  {askers: 1, inBatch: true, ended: true, found: true},
		"the last, ended in the queue": {askers: 1, ended: true, found: true},
	} {
		x, cancelled := &shared{}, false
		fl := &flight{digest: d, askers: c.askers, ended: c.ended}
		x.inFlight = map[digest.Digest]*flight{d: fl}
		if c.inBatch {
			fl.batch = &batch{
				cancel: func() { cancelled = true }, flights: map[digest.Digest]*flight{d: fl}, open: 1, askers: c.askers + c.others,
			}
		}
		x.leave(fl)
		if found := x.inFlight[d] == fl; found != c.found || cancelled != c.cancelled || fl.askers != c.askers-1 {
			t.Errorf("%s: it is found %t, its call cancelled %t; want %t, %t", name, found, cancelled, c.found, c.cancelled)
		}
		if c.inBatch && !c.ended && fl.batch.askers != c.askers+c.others-1 {
			t.Errorf("%s: %d wait for the call", name, fl.batch.askers)
		}
	}
}
