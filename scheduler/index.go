package scheduler

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/record"
	indexed "github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/journal"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// indexParts are the records of an Index, so that of many only those are written that changed.
	indexParts = 64
	// indexEvery is how often an Index is written. Operations that have run for less are not in it:
	// most are over before a client could come back.
	indexEvery = time.Second
	// indexFresh is for how long a record holds, indexRefresh when it is written again though
	// nothing changed.
	indexFresh, indexRefresh = 10 * time.Minute, 3 * time.Minute
	// indexTimeout bounds each call of the store, and all of the last ones.
	indexTimeout = time.Second
	// maxIndexed bounds the operations of an Index, maxIndexedBytes each and maxPartBytes each
	// record.
	maxIndexed, maxIndexedBytes, maxPartBytes = 20_000, 16 << 10, 1 << 20
)

// An Index stores, outside of a scheduler, the operations whose actions workers have, so that the
// next scheduler knows them before their workers come back. It may be a second late. While its
// store does not answer, clients execute their actions again after a restart. It belongs to one
// Server.
type Index struct {
	store *indexed.Careful
	name  string
	parts [indexParts]indexPart
}

// An indexPart is the last written content: which operations, and when.
type indexPart struct {
	sum uint64
	at  time.Time
}

// NewIndex returns the Index with a name in a store, which the caller closes. Schedulers that
// replace each other use the same name.
func NewIndex(store indexed.Durable, name string, log *zap.Logger) *Index {
	return &Index{name: name, store: indexed.NewCareful(store, indexed.CarefulOptions{
		Timeout: indexTimeout, Logger: log, Subject: "running operations", Without: "clients execute their actions again after a restart",
	})}
}

func (x *Index) key(part int) indexed.Key {
	return indexed.Key{Bucket: names.IndexBucket, Digest: digest.Of(digest.SHA256, fmt.Appendf(nil, "%s/%d", x.name, part))}
}

// Load returns the recent operations, in the order of their start; unreadable ones are omitted.
func (x *Index) Load(ctx context.Context) (held []event.Held) {
	for part := range indexParts {
		value, ok := x.store.Get(ctx, x.key(part))
		if !ok {
			break // the others would fail, too
		}
		var m record.Index
		if proto.Unmarshal(value, &m) != nil || time.Since(m.GetAt().AsTime()) > indexFresh {
			continue
		}
		for _, one := range m.GetHeld() {
			if h, err := journal.DecodeHeld(one); err == nil {
				held = append(held, h)
			}
		}
	}
	slices.SortFunc(held, func(a, b event.Held) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Name, b.Name)) })
	return held
}

// write stores exactly held. If the store fails, the next write tries again.
func (x *Index) write(ctx context.Context, held []event.Held) {
	var parts [indexParts][]event.Held
	for _, h := range held {
		f := fnv.New32a()
		_, _ = f.Write([]byte(h.Name))
		part := f.Sum32() % indexParts
		parts[part] = append(parts[part], h)
	}
	for i := range parts {
		p, sum := &x.parts[i], sumOf(parts[i])
		if now := time.Now(); p.at.IsZero() || p.sum != sum || len(parts[i]) > 0 && now.Sub(p.at) >= indexRefresh {
			if !x.store.Put(ctx, x.key(i), encodeIndex(now, parts[i])) {
				return
			}
			*p = indexPart{sum, now}
		}
	}
}

// sumOf identifies the content of a part, in any order.
func sumOf(held []event.Held) (sum uint64) {
	for _, h := range held {
		f := fnv.New64a()
		_, _ = f.Write(binary.AppendVarint([]byte(h.Name), h.Started.UnixNano()))
		sum += f.Sum64()
	}
	return sum
}

// encodeIndex omits operations that are too large.
func encodeIndex(now time.Time, held []event.Held) []byte {
	m := &record.Index{At: timestamppb.New(now)}
	size := 0
	for _, h := range held {
		one := journal.EncodeHeld(h)
		one.Action, one.Auxiliary = h.Action, operation.Auxiliary(h.Operation)
		n := proto.Size(one) + 8
		if n > maxIndexedBytes || size+n > maxPartBytes-64 {
			continue
		}
		size += n
		m.Held = append(m.Held, one)
	}
	b, _ := proto.Marshal(m) // its strings have come over the wire
	return b
}

// keep writes the held operations until ctx ends, and then once more.
func (x *Index) keep(ctx context.Context, e *engine.Engine) {
	ticker := time.NewTicker(indexEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), indexTimeout)
			defer cancel()
			x.write(last, snapshot(e))
			return
		case <-ticker.C:
			x.write(ctx, snapshot(e))
		}
	}
}

func snapshot(e *engine.Engine) (held []event.Held) {
	e.Look(func(v *core.View) { held = v.Held(time.Now().Add(-indexEvery), maxIndexed) })
	return held
}
