package operators

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// maxLost is how many workers that were lost are remembered.
const maxLost = 100

// together is within which time positions that stop calling are one loss, of their worker.
const together = time.Minute

// A Lost remembers workers that stopped calling without having drained. The zero value is ready for
// use; mu is taken without any other lock.
type Lost struct {
	mu    sync.Mutex
	total int64
	last  []*admin.LostWorker // the latest last; none is changed
}

// Add records the loss of a position. It reports whether that is a further loss of a worker.
func (l *Lost) Add(now time.Time, d event.Departure) bool {
	worker := &admin.LostWorker{Identity: names.WithoutPosition(d.ID), At: timestamppb.New(now), Action: d.Action}
	if d.Action != "" {
		worker.Actions = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, before := range l.last {
		if now.Sub(before.GetAt().AsTime()) < together && maps.Equal(before.GetIdentity(), worker.GetIdentity()) {
			worker.Action = cmp.Or(before.GetAction(), worker.GetAction())
			worker.Actions += before.GetActions()
			l.last = append(slices.Delete(l.last, i, i+1), worker)
			return false
		}
	}
	l.total++
	if len(l.last) == maxLost {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, worker)
	return true
}

func (l *Lost) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// list returns the latest first.
func (l *Lost) list() []*admin.LostWorker {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.last)
	slices.Reverse(list)
	return list
}
