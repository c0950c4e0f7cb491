package soak

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/forerunner-build/forerunner/test/programs"
)

// soakSettle limits the time until the programs are idle: they wait a minute for a client that has
// left.
const soakSettle = 2 * time.Minute

// The resources that are counted of each program, and the growth that is not a leak: a share of the
// first count, and a constant.
var soakCounts = []struct {
	name, metric string
	unit, share  float64
	spare        float64
}{
	{"goroutines", "go_goroutines", 1, 0, 10},
	{"open files", "process_open_fds", 1, 0, 10},
	{"heap, MiB", "go_memstats_heap_alloc_bytes", 1 << 20, 0.1, 8},
	{"resident, MiB", "process_resident_memory_bytes", 1 << 20, 0.2, 32},
}

// A series has the counts of a program between two of its starts.
type series struct {
	life   int
	values []float64
}

// A usage has the series by their names.
type usage map[string]*series

// count adds the present counts, when the farm is idle. Counts before keep only serve to know the
// number of starts.
func (u usage) count(s *soakFarm, keep bool) {
	s.Helper()
	all := append([]*soakProgram{s.storage, s.scheduler}, s.workers...)
	s.settled(all)
	add := func(name string, life int, value float64) {
		if u[name] == nil || u[name].life != life || !keep {
			u[name] = &series{life: life}
		}
		u[name].values = append(u[name].values, value)
	}
	for _, p := range all {
		if _, err := s.get(p, "/debug/pprof/heap?gc=1"); err != nil {
			s.Error(err)
		}
		metrics := s.metrics(p)
		for _, c := range soakCounts {
			add(p.name+" "+c.name, p.since, metrics[c.metric]/c.unit)
		}
	}
	add("mounts", 0, float64(programs.MountsBelow(s.T, s.Dir)))
	add("cgroups", 0, float64(s.countGroups()))
}

// settled waits until nothing of an action is left: no process, and no more mounts than before.
func (s *soakFarm) settled(all []*soakProgram) {
	s.Helper()
	last, same := "", 0
	for end := time.Now().Add(soakSettle); same < 3; time.Sleep(200 * time.Millisecond) {
		now := fmt.Sprint(programs.MountsBelow(s.T, s.Dir), s.countGroups())
		for _, p := range all {
			m := s.metrics(p)
			now += fmt.Sprint(" ", m["go_goroutines"], m["process_open_fds"])
		}
		if same++; now != last {
			last, same = now, 0
		}
		if time.Now().After(end) {
			return // the counts tell
		}
	}
}

// countGroups counts the cgroups of all workers, dead ones too, and those below.
func (s *soakFarm) countGroups() (n int) {
	s.Helper()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return s.groups[part] }) {
			n++
		}
		return nil // a group of another program may have disappeared meanwhile
	})
	return n
}

func (s *soakFarm) get(p *soakProgram, path string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soakSettle}
	answer, err := client.Get("http://" + p.http + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// metrics returns what a program tells of itself, without what has labels.
func (s *soakFarm) metrics(p *soakProgram) map[string]float64 {
	s.Helper()
	text, err := s.get(p, "/metrics")
	if err != nil {
		s.Error(err)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = number
		}
	}
	return all
}

// table shows all series, and names those that have grown.
func (u usage) table() (text string, grown []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tcounted\tfirst\tleast\tmost\tlast\tgrowth\tallowed\t")
	for _, name := range slices.Sorted(maps.Keys(u)) {
		s := u[name]
		growth, allowed := trend(s.values), allowedGrowth(name, s.values[0])
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%+.1f\t%.1f\t\n", name, len(s.values), s.values[0], slices.Min(s.values),
			slices.Max(s.values), s.values[len(s.values)-1], growth, allowed)
		if growth > allowed {
			grown = append(grown, name)
		}
	}
	_ = w.Flush()
	return b.String(), grown
}

// allowedGrowth returns the growth of a count that is not a leak.
func allowedGrowth(name string, first float64) float64 {
	for _, c := range soakCounts {
		if strings.HasSuffix(name, c.name) {
			return c.spare + c.share*first
		}
	}
	return 0
}

// trendFrom is of how many values there is a trend.
const trendFrom = 8

// trend returns how much values have grown from the first to the last, along the line through
// them whose slope is the median of those between any two: a few that stand out change nothing
// (Theil and Sen). Few values have none.
func trend(values []float64) float64 {
	if len(values) < trendFrom {
		return 0
	}
	var slopes []float64
	for i, v := range values {
		for j, w := range values[:i] {
			slopes = append(slopes, (v-w)/float64(i-j))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2] * float64(len(values)-1)
}

func TestTrend(t *testing.T) {
	series := func(f func(i int) float64) (values []float64) {
		for i := range 40 {
			values = append(values, f(i))
		}
		return values
	}
	noise := func(i int) float64 { return 5 * math.Sin(float64(i*i)) }
	for _, test := range []struct {
		name   string
		values []float64
		least  float64
		most   float64
	}{
		{"flat", series(func(int) float64 { return 7 }), 0, 0},
		{"noise", series(noise), -2, 2},
		{"leak", series(func(i int) float64 { return 100 + float64(i) }), 39, 39},
		{"leak below noise", series(func(i int) float64 { return noise(i) + float64(i)/2 }), 17, 22},
		{"one outlier", append(series(func(int) float64 { return 7 }), 1000), 0, 0},
		{"shrinks", series(func(i int) float64 { return -float64(i) }), -39, -39},
		{"too few", []float64{1, 2, 3}, 0, 0},
	} {
		if got := trend(test.values); got < test.least || got > test.most {
			t.Errorf("%s: trend %v, want %v to %v", test.name, got, test.least, test.most)
		}
	}
}
