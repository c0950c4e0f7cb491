package farm

import (
	"testing"

	"github.com/forerunner-build/forerunner/farm/serve"
)

func TestPageURL(t *testing.T) {
	for _, c := range []struct {
		scheduler Scheduler
		want      string
	}{
		{Scheduler{HTTP: "127.0.0.1:8981"}, "http://127.0.0.1:8981/"},
		{Scheduler{HTTP: "127.0.0.1:8981", Ports: serve.Ports{Cert: "c"}}, "https://127.0.0.1:8981/"},
		{Scheduler{HTTP: "0.0.0.0:8981"}, ""},
		{Scheduler{HTTP: "127.0.0.1:0"}, ""},
		{Scheduler{}, ""},
		{Scheduler{HTTP: "0.0.0.0:8981", PageURL: "https://farm.example"}, "https://farm.example/"},
		{Scheduler{PageURL: "https://example/farm/"}, "https://example/farm/"},
	} {
		if got := c.scheduler.Pages(); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.scheduler.HTTP, c.scheduler.PageURL, got, c.want)
		}
	}
}

// TestFarmName has schedulers whose plots are kept in one place.
func TestFarmName(t *testing.T) {
	one, other := Scheduler{Data: "/a"}, Scheduler{Data: "/b"}
	if one.farmName(false) != other.farmName(false) {
		t.Error("a data folder that is moved loses its lines")
	}
	if one.farmName(true) == other.farmName(true) {
		t.Error("two schedulers have the same lines")
	}
	one.Lease, other.Lease = "main", "main"
	if one.farmName(true) != other.farmName(true) || one.farmName(true) == (&Scheduler{Lease: "test"}).farmName(true) {
		t.Error("schedulers that take turns do not share their lines, or others do")
	}
}
