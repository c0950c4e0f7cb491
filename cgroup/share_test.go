package cgroup

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/mountinfo"
)

func TestDivide(t *testing.T) {
	const gib = 1 << 30
	machine := Capacity{CPUs: []int{0, 1, 2, 3}, Quota: 4000, Memory: 20 * gib, Pids: 32768}
	limited := machine // a container with a quota and a memory limit
	limited.Quota, limited.Memory = 2500, 2*gib
	small := machine // the connections' share of its memory
	small.Sockets = gib
	tiny := Capacity{CPUs: []int{5}, Quota: 1000, Memory: gib, Pids: 100}
	equal := func(cpus []int, quota, n int) []Limits {
		all := make([]Limits, n)
		for i := range all {
			all[i] = Limits{CPUs: cpus, Quota: quota, Memory: 19 * gib / int64(n), Pids: 4096}
		}
		return all
	}
	cases := []struct {
		name     string
		capacity Capacity
		share    Share
		cpus     [][]int
		want     Limits // of each limit except CPUs
	}{
		{"one slot has all", machine, Share{Slots: 1}, [][]int{{0, 1, 2, 3}}, equal(nil, 0, 1)[0]},
		{"whole CPUs", machine, Share{Slots: 2}, [][]int{{0, 1}, {2, 3}}, equal(nil, 0, 2)[0]},
		{"a CPU is left over", machine, Share{Slots: 3}, [][]int{{0}, {1}, {2}}, equal(nil, 0, 3)[0]},
		{
			"fractions share CPUs", machine,
			Share{Slots: 2, Quota: 1500, Memory: gib},
			[][]int{{0, 1}, {1, 2}},
			Limits{Quota: 1500, Memory: gib, Pids: 4096},
		},
		{
			"less than a CPU", machine,
			Share{Slots: 8, Memory: gib},
			[][]int{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}},
			Limits{Quota: 500, Memory: gib, Pids: 2048},
		},
		{
			"thirds", machine,
			Share{Slots: 6, Quota: 333, Memory: gib},
			[][]int{{0}, {0}, {0}, {1}, {1}, {1}},
			Limits{Quota: 333, Memory: gib, Pids: 2730},
		},
		{
			"more than there is", machine,
			Share{Slots: 3, Quota: 2000, Memory: gib},
			[][]int{{0, 1}, {2, 3}, {0, 1}},
			Limits{Quota: 2000, Memory: gib, Pids: 4096},
		},
		{
			"a quota around", limited,
			Share{Slots: 2},
			[][]int{{0}, {1}},
			Limits{Memory: (2*gib - 2*gib/10) / 2, Pids: 4096},
		},
		{
			"less for connections than a quarter of the memory", small,
			Share{Slots: 2},
			[][]int{{0, 1}, {2, 3}},
			Limits{Memory: 19 * gib / 2, Pids: 4096, Sockets: gib / 4},
		},
		{
			"a quarter of the memory is less", small,
			Share{Slots: 2, Memory: gib / 2},
			[][]int{{0, 1}, {2, 3}},
			Limits{Memory: gib / 2, Pids: 4096},
		},
		{
			"connections of many slots", small,
			Share{Slots: 200, Quota: 20, Memory: gib},
			nil,
			Limits{Quota: 20, Memory: gib, Pids: 81, Sockets: fewestSockets},
		},
		{
			"few processes", tiny,
			Share{Slots: 1, Memory: gib},
			[][]int{{5}},
			Limits{Memory: gib, Pids: 64},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.capacity.Divide(c.share)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != c.share.Slots || c.cpus != nil && len(got) != len(c.cpus) {
				t.Fatalf("%d slots, want %d", len(got), c.share.Slots)
			}
			for i, l := range got {
				want := c.want
				if want.CPUs = l.CPUs; c.cpus != nil {
					want.CPUs = c.cpus[i]
				}
				if !reflect.DeepEqual(l, want) {
					t.Errorf("slot %d: got %+v, want %+v", i, l, want)
				}
			}
		})
	}
	for _, s := range []Share{{}, {Slots: 1, Quota: 4500}, {Slots: 1, Memory: 21 * gib}, {Slots: 1000}} {
		if got, err := machine.Divide(s); err == nil {
			t.Errorf("%+v: got %+v, want an error", s, got)
		}
	}
}

// The limits of a container count, whichever group around sets them.
func TestLimitsOfGroupsAround(t *testing.T) {
	root := t.TempDir()
	write := func(files map[string]string) {
		for name, text := range files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(map[string]string{
		"v2/cgroup.procs":              "",
		"v2/box/cgroup.procs":          "",
		"v2/box/memory.max":            "1000000",
		"v2/box/cpu.max":               "150000 100000",
		"v2/box/job/cgroup.procs":      "",
		"v2/box/job/memory.max":        "max",
		"v2/box/job/cpu.max":           "max 100000",
		"v2/box/job/pids.max":          "77",
		"cpu/cgroup.procs":             "",
		"cpu/cpu.cfs_quota_us":         "-1",
		"cpu/box/cgroup.procs":         "",
		"cpu/box/cpu.cfs_quota_us":     "100000",
		"cpu/box/cpu.cfs_period_us":    "50000",
		"mem/cgroup.procs":             "",
		"mem/memory.limit_in_bytes":    "9223372036854771712",
		"mem/me/cgroup.procs":          "",
		"mem/me/memory.limit_in_bytes": "5000000",
	})
	v2 := mountinfo.Mount{Root: "/", Point: filepath.Join(root, "v2"), Type: v2Type}
	cases := []struct {
		name   string
		around surroundings
		want   Capacity
	}{
		{"v2", surroundings{mounts: []mountinfo.Mount{v2}, unified: "/box/job"}, Capacity{Quota: 1500, Memory: 1000000, Pids: 77}},
		{"none", surroundings{mounts: []mountinfo.Mount{v2}, unified: "/"}, Capacity{Quota: 8000, Memory: 1 << 40, Pids: 32768}},
		{"v1", surroundings{
			mounts: []mountinfo.Mount{
				v2,
				{Root: "/", Point: filepath.Join(root, "cpu"), Type: v1Type, Options: "rw,cpu,cpuacct"},
				{Root: "/", Point: filepath.Join(root, "mem"), Type: v1Type, Options: "rw,memory"},
			},
			v1: map[string]string{"cpu": "/box", "memory": "/me"}, unified: "/",
		}, Capacity{Quota: 2000, Memory: 5000000, Pids: 32768}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Capacity{Quota: 8000, Memory: 1 << 40, Pids: 32768}
			if err := got.boundBy(c.around); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	c, err := Measure()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.CPUs) == 0 || c.Quota <= 0 || c.Memory < 64<<20 || c.Pids <= 0 {
		t.Errorf("got %+v", c)
	}
	if _, err := c.Divide(Share{Slots: 1}); err != nil {
		t.Error(err)
	}
}

func TestReadingOfFigures(t *testing.T) {
	var c counters
	readCPUv2(&c, []byte("usage_usec 7\nuser_usec 4\nsystem_usec 3\nnr_throttled 1\nthrottled_usec 2\n"))
	readPressure([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=11\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"),
		&c.memorySome, &c.memoryFull)
	readIO(&c, []byte("8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1\n"))
	want := counters{user: 4000, system: 3000, throttled: 2000, memorySome: 11000, memoryFull: 5000, read: 11, written: 22}
	if c != want {
		t.Errorf("v2: got %+v, want %+v", c, want)
	}
	text := []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	if got := value(text, "oom_kill"); got != 3 {
		t.Errorf("oom_kill is %d", got)
	}
	if got := value([]byte(strings.Repeat("x 1\n", 3)), "oom_kill"); got != 0 {
		t.Errorf("a missing key is %d", got)
	}
}
