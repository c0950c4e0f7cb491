package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// TestFollowers compares the streams of an operation with a slice.
func TestFollowers(t *testing.T) {
	s := streams{}
	random := rand.New(rand.NewPCG(1, 2))
	var want []*Mailbox
	for range 1000 {
		if i := random.IntN(6); i < len(want) {
			s.remove("op", want[i])
			want = slices.Delete(want, i, i+1)
		} else {
			m := NewMailbox()
			s.add("op", m)
			want = slices.Insert(want, 0, m)
		}
		var got []*Mailbox
		for m := s["op"].first; m != nil; m = m.next {
			got = append(got, m)
		}
		if !slices.Equal(got, want) || s["op"].count != len(want) || len(s) != min(len(want), 1) {
			t.Fatalf("%v follow, want %v", got, want)
		}
	}
}

// TestPatientMailbox tells of the end at once, and of other states when its patience has ended.
func TestPatientMailbox(t *testing.T) {
	op := &request.Operation{Name: "x"}
	told := func(m *Mailbox) bool {
		select {
		case <-m.Full():
			return true
		default:
			return false
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m := NewPatientMailbox(time.Second)
		defer m.Leave()
		m.Put(&event.Status{Operation: op, Rev: 1})
		time.Sleep(time.Second - 1)
		m.Put(&event.Status{Operation: op, Rev: 2, Stage: repb.ExecutionStage_EXECUTING})
		if told(m) {
			t.Error("it told of a state at once")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st, _ := m.Take(); !told(m) || st.Rev != 2 {
			t.Errorf("after a second it has %v", st)
		}
		m.Put(&event.Status{Operation: op, Rev: 3})
		if st, _ := m.Take(); !told(m) || st.Rev != 3 {
			t.Errorf("later it has %v", st)
		}

		short := NewPatientMailbox(time.Second)
		short.Put(&event.Status{Operation: op, Rev: 1})
		short.Put(&event.Status{Operation: op, Rev: 2, Stage: repb.ExecutionStage_COMPLETED})
		if st, _ := short.Take(); !told(short) || st.Rev != 2 {
			t.Errorf("it has %v, and not the end", st)
		}
		short.Leave()

		idle := NewPatientMailbox(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if told(idle) {
			t.Error("it told of nothing")
		}
		closed := NewPatientMailbox(time.Second)
		closed.Close()
		if !told(closed) {
			t.Error("it did not tell that it is closed")
		}
		time.Sleep(time.Second)
	})
}

func TestMailboxKeepsTheLatest(t *testing.T) {
	m, op := NewMailbox(), &request.Operation{Name: "x"}
	m.Put(&event.Status{Operation: op, Rev: 2})
	m.Put(&event.Status{Operation: op, Rev: 4, Stage: repb.ExecutionStage_COMPLETED})
	m.Put(&event.Status{Operation: op, Rev: 3})
	<-m.Full()
	if st, open := m.Take(); st.Rev != 4 || !open {
		t.Errorf("took revision %d, open: %v", st.Rev, open)
	}
	m.Put(&event.Status{Operation: op, Rev: 1})
	select {
	case <-m.Full():
		t.Error("an old state woke the stream")
	default:
	}
	m.Put(&event.Status{Operation: op, Rev: 5})
	m.Close()
	m.Put(&event.Status{Operation: op, Rev: 6})
	for _, want := range []uint64{5, 0} {
		<-m.Full()
		st, open := m.Take()
		if open || (st == nil) != (want == 0) || st != nil && st.Rev != want {
			t.Errorf("took %v of a closed mailbox, open: %v; want revision %d", st, open, want)
		}
	}
}
