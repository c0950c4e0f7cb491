package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

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
