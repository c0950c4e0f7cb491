package roster

import (
	"slices"
	"testing"
)

type one struct{ Member }

func TestRoster(t *testing.T) {
	r := New[*one]()
	add := func(key string, connection uint64) *one {
		w := &one{Member{Key: key}}
		r.Add(w)
		r.Connect(w, connection)
		return w
	}
	b, a, c := add("b", 1), add("a", 1), add("c", 2)
	whole := func(connections int) {
		t.Helper()
		if problem := r.Check(); problem != "" || r.Connections() != connections {
			t.Errorf("%d connections, want %d; %s", r.Connections(), connections, problem)
		}
	}
	whole(2)
	if got := r.Sorted(); !slices.Equal(got, []*one{a, b, c}) || r.Len() != 3 || r.Get("c") != c || r.Get("d") != nil {
		t.Errorf("known are %v", got)
	}
	r.Connect(c, 3)
	whole(2)
	if gone := r.Disconnect(2); len(gone) > 0 {
		t.Errorf("a connection that nobody calls over had %v", gone)
	}
	if gone := r.Disconnect(1); !slices.Equal(gone, []*one{a, b}) || a.Connection() != 0 {
		t.Errorf("a connection had %v", gone)
	}
	whole(1)
	r.Remove(c)
	whole(0)
	if r.Get("c") != nil || r.Len() != 2 {
		t.Error("a worker that was removed is known")
	}
	b.connection = 7
	if r.Check() == "" {
		t.Error("a worker with a connection that is not known passes")
	}
}
