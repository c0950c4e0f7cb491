package serve

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/forerunner-build/forerunner/cgroup"
)

// TestMemory: a set limit applies whatever the machine has. Without one a program has its share of
// the machine's memory. Both never exceed GOMEMLIMIT.
func TestMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	there, err := cgroup.Measure()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		memory  *Memory
		goLimit string
		want    int64
	}{
		"none":                      {nil, "", there.Memory},
		"zero":                      {&Memory{}, "", there.Memory},
		"a quarter":                 {&Memory{Share: 4}, "", there.Memory / 4},
		"a limit":                   {&Memory{Limit: "3M", Share: 4}, "", 3 << 20},
		"the limit of Go":           {&Memory{}, "2MiB", 2 << 20},
		"a limit beyond that of Go": {&Memory{Limit: "3M"}, "2MiB", 3 << 20},
		"no limit of Go":            {&Memory{}, "off", there.Memory},
		"a limit of Go of nothing":  {&Memory{}, "0", there.Memory},
	} {
		t.Setenv("GOMEMLIMIT", c.goLimit)
		if n, err := c.memory.Bytes(); n != c.want || err != nil {
			t.Errorf("%s: %d bytes, %v; want %d", name, n, err, c.want)
		}
	}
	if n, err := (&Memory{Limit: "x"}).Bytes(); err == nil {
		t.Errorf("a limit that is no size: %d bytes", n)
	}
	limited := &Memory{Limit: "80M"}
	for most, want := range map[int64]int64{1 << 20: 1 << 20, 1 << 30: 10 << 20} {
		if n, err := limited.CacheBytes(most); n != want || err != nil {
			t.Errorf("a cache of %d bytes has %d, %v; want %d", most, n, err, want)
		}
	}
}

// TestEnforce: the collector knows the limit, unless GOMEMLIMIT says otherwise.
func TestEnforce(t *testing.T) {
	const unset = -1
	before := debug.SetMemoryLimit(unset)
	defer debug.SetMemoryLimit(before)
	m := &Memory{Limit: "100G"}
	for goLimit, want := range map[string]int64{"1TiB": math.MaxInt64, "": 100 << 30 / 100 * softPercent} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", goLimit)
		if n, err := m.Enforce(); n != 100<<30 || err != nil {
			t.Errorf("GOMEMLIMIT=%s: %d bytes, %v", goLimit, n, err)
		}
		if got := debug.SetMemoryLimit(unset); got != want {
			t.Errorf("GOMEMLIMIT=%s: the collector has %d bytes, want %d", goLimit, got, want)
		}
	}
	if _, err := (&Memory{Limit: "x"}).Enforce(); err == nil {
		t.Error("a limit that is no size is enforced")
	}
}
