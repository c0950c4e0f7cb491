package operators

import (
	"fmt"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// TestLostPositionsAreOneWorker has the positions of two machines stop calling: that is one loss of
// each, until it happens again.
func TestLostPositionsAreOneWorker(t *testing.T) {
	var l Lost
	start := time.Unix(1e9, 0)
	for _, step := range []struct {
		at                     time.Duration
		host, position, action string
		further                bool
	}{
		{0, "a", "0", "", true},
		{time.Second, "b", "0", "bb/1", true},
		{2 * time.Second, "a", "1", "aa/1", false},
		{25 * time.Second, "a", "2", "aa/2", false},
		{24*time.Second + together, "a", "3", "", false},
		{25*time.Second + 3*together, "a", "0", "", true},
	} {
		d := event.Departure{ID: map[string]string{names.HostKey: step.host, names.PositionKey: step.position}, Action: step.action}
		if got := l.Add(start.Add(step.at), d); got != step.further {
			t.Errorf("at %s position %s of %s is a further loss: %t", step.at, step.position, step.host, got)
		}
	}
	list := l.list()
	if l.count() != 3 || len(list) != 3 {
		t.Fatalf("%d lost: %v", l.count(), list)
	}
	if first := list[1]; first.GetIdentity()[names.HostKey] != "a" || len(first.GetIdentity()) != 1 || first.GetActions() != 2 || first.GetAction() != "aa/1" {
		t.Errorf("the first loss of a: %v", first)
	}
	if other := list[2]; other.GetActions() != 1 || other.GetAction() != "bb/1" {
		t.Errorf("the loss of b: %v", other)
	}
}

// TestLostAreBounded loses more workers than are remembered: the latest are, and all are counted.
func TestLostAreBounded(t *testing.T) {
	var l Lost
	const all = maxLost + 3
	for i := range all {
		l.Add(time.Unix(1e9, 0), event.Departure{ID: map[string]string{names.HostKey: fmt.Sprint(i)}})
	}
	list := l.list()
	if len(list) != maxLost || l.count() != all {
		t.Fatalf("of %d, %d are remembered and %d counted", all, len(list), l.count())
	}
	if first, last := list[0].GetIdentity()[names.HostKey], list[maxLost-1].GetIdentity()[names.HostKey]; first != fmt.Sprint(all-1) || last != "3" {
		t.Errorf("the latest is %s, the first that is remembered %s", first, last)
	}
}
