package ids

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// TestIDsOfWorkers: workers of one machine have different ids, whatever others have reserved. A
// worker that ends releases them.
func TestIDsOfWorkers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only workers that are root have ids to give")
	}
	first, err := Take("/data", 4)
	if err != nil {
		t.Fatal(err)
	}
	// The names that once stood for ids.
	for i := range 3 {
		l, err := net.Listen("unix", fmt.Sprintf("@forerunner-ids-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
	second, err := Take("/data", 4)
	if err != nil {
		t.Fatal(err)
	}
	end := func(o *Own) uint32 { return o.First + o.Each*uint32(o.Count) }
	if second.First < end(first) && first.First < end(second) {
		t.Errorf("ids from %d to %d, and from %d to %d", first.First, end(first), second.First, end(second))
	}
	taken := first.First
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Take("/data", 4)
	if err != nil || again.First != taken {
		t.Errorf("got %+v, %v; want those from %d on", again, err, taken)
	}
	for _, o := range []*Own{second, again} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}
