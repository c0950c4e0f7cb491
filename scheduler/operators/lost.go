package operators

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// maxLost is how many workers that were lost are remembered.
const maxLost = 100

// A Lost remembers workers that stopped calling without having drained. Zero is ready for
// use; mu is taken without any other lock.
type Lost struct {
	mu    sync.Mutex
	total int64
	last  []*admin.LostWorker // the latest last; none is changed
}

// Add remembers that a worker is lost.
func (l *Lost) Add(now time.Time, d event.Departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	if len(l.last) == maxLost {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, &admin.LostWorker{Identity: d.ID, At: timestamppb.New(now), Action: d.Action})
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
