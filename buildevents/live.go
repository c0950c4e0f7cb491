package buildevents

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/auth"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/publish"
)

// A live build is one that is published now, by one stream at a time.
type live struct {
	key     key
	service *Service

	mu sync.Mutex // guards all below
	// owner is the newest stream: a client that reconnects does not wait for the end of its earlier
	// call.
	owner   *stream
	project string
	build   *build
	changed bool // since it was kept
	// written is the time of the last write, wait how long after it counts and successes are written.
	written time.Time
	wait    time.Duration
	timer   *time.Timer // until it is written; nil: nothing has changed
	due     time.Time   // of the timer
}

func newLive(s *Service, k key, b *build) *live {
	return &live{key: k, service: s, build: b}
}

// join makes the stream that publishes the build, from the event with this number on.
func (l *live) join(in *stream, project string, first int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner, l.project = in, project
	if first > l.build.GetLastEvent()+1 {
		l.build.Incomplete, l.changed = true, true // as after a crash: events in between were acknowledged, and are lost
	}
}

// take applies a new event. It reports whether the stream still publishes the build.
func (l *live) take(in *stream, n int64, e *publish.BuildEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != in {
		return false
	}
	if n <= l.build.GetLastEvent() {
		return true
	}
	l.build.LastEvent = n
	result := taken
	switch p := e.GetEvent().(type) {
	case *publish.BuildEvent_BazelEvent:
		event, isTooLarge := decoded(p.BazelEvent)
		switch {
		case isTooLarge:
			l.build.TooLarge++
			result = tooLarge
		case event != nil:
			l.build.take(event)
			if event.GetStarted() != nil {
				l.build.announced(p.BazelEvent.GetValue())
			}
		}
	case *publish.BuildEvent_ComponentStreamFinished:
		l.build.Ended, l.build.isUrgent = true, true
	}
	l.service.events.WithLabelValues(result).Inc()
	l.changed = true
	l.scheduleLocked()
	return true
}

// scheduleLocked sets the timer for the next write.
func (l *live) scheduleLocked() {
	now, wait := time.Now(), l.wait
	if l.build.isUrgent {
		wait = leastWait
	}
	due := now.Add(gather)
	if next := l.written.Add(wait); next.After(due) {
		due = next
	}
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(due.Sub(now), l.tick)
	case due.Before(l.due):
		l.timer.Reset(due.Sub(now))
	default:
		return
	}
	l.due = due
}

// tick writes changes.
func (l *live) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return // the stream has ended in the meantime
	}
	l.timer = nil
	l.writeLocked()
}

// leave writes the build, and reports whether no stream publishes it any more.
func (l *live) leave(in *stream) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != in {
		return false
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.writeLocked()
	return true
}

func (l *live) writeLocked() {
	if !l.changed {
		return
	}
	b := l.build
	r := &historypb.Record{
		Invocation: l.key.invocation, User: l.key.user, InstanceName: l.instanceLocked(l.owner.ctx), Outcome: b.outcome(),
		ExitCode: b.GetExitCode(), Queued: b.GetStarted(), Started: b.GetStarted(), Ended: timestamppb.Now(), Mnemonic: b.GetCommand(),
		Build: proto.Clone(b.Build).(*historypb.Build),
	}
	if len(b.GetPatterns()) > 0 {
		r.Target = b.GetPatterns()[0]
	}
	l.changed = !l.service.store.AddBuild(r, auth.CallerOf(l.owner.ctx))
	l.build.isUrgent = false
	l.written, l.wait = time.Now(), max(leastWait, time.Duration(proto.Size(r.GetBuild()))*time.Second/bytesPerSecond)
}

// instanceLocked is the instance name of the build: the one from the client, if its user may
// execute for it.
func (l *live) instanceLocked(ctx context.Context) string {
	for _, name := range []string{l.project, l.build.instance} {
		if name != "" && auth.Allowed(ctx, auth.Execute, name) {
			return name
		}
	}
	return ""
}
