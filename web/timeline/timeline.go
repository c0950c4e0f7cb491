package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/text"
)

// Most limits the actions of a Line.
const Most = 50_000

const (
	// maxLanes limits the lanes that are drawn. Up to fewLanes lanes share the whole height.
	maxLanes, fewLanes = 200, 24
	// noPart is the share of the time line (1/noPart) below which a stage is not drawn.
	noPart = 50_000
	// waitBins is the number of parts of the time line for which the average number of waiting
	// actions is drawn; waitHeight is the height of the largest.
	waitBins, waitHeight = 240, 40
)

// A Line has the actions of a build, for one viewer. It is not safe for concurrent use.
type Line struct {
	ran []bar // completed actions that the page does not have yet
	// Following: the page is open and needs only additions.
	Following bool
	// Have is the time up to which the page has completed actions, Known the number of actions.
	Have  time.Time
	Known int
	// Waiting has the time since when each queued action has been waiting.
	Waiting []time.Time
}

// A bar is a completed or running action.
type bar struct {
	worker, operation, name string
	// parts are the times when the worker got the action, when its command started and ended, and
	// when the action ended.
	parts [4]time.Time
	// waited is the time in the queue before.
	waited time.Duration
	failed bool
}

// partsOf returns the times that separate the stages on the time line.
func partsOf(r *historypb.Record) [4]time.Time {
	m, end := r.GetMetadata(), r.GetEnded().AsTime()
	p := [4]time.Time{r.GetStarted().AsTime(), r.GetStarted().AsTime(), end, end}
	if at := m.GetExecutionStartTimestamp(); at != nil {
		p[1] = at.AsTime()
	}
	if at := m.GetExecutionCompletedTimestamp(); at != nil {
		p[2] = at.AsTime()
	}
	for i := 1; i < len(p); i++ { // two machines' clocks may disagree
		p[i] = Later(p[i], p[i-1])
		if p[i].After(end) {
			p[i] = Later(end, p[i-1])
		}
	}
	return p
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Add adds a completed action.
func (l *Line) Add(r *historypb.Record, failed bool) {
	if r.GetStarted() == nil || r.GetWorker() == "" || l.Known >= Most {
		return
	}
	if l.Known++; l.Following && r.GetEnded().AsTime().Before(l.Have) {
		return
	}
	l.ran = append(l.ran, bar{
		worker: r.GetWorker(), operation: r.GetOperation(), name: nameOf(r.GetTarget(), r.GetOperation(), r.GetMnemonic()), parts: partsOf(r),
		waited: max(r.GetStarted().AsTime().Sub(r.GetQueued().AsTime()), 0), failed: failed,
	})
}

func nameOf(target, operation, mnemonic string) string {
	return strings.TrimSpace(cmp.Or(target, text.OperationID(operation)) + " " + mnemonic)
}

// barsOf returns the bars of running actions.
func barsOf(running []*admin.Operation, now time.Time) []bar {
	list := make([]bar, 0, len(running))
	for _, op := range running {
		if op.GetStarted() == nil {
			continue
		}
		at := op.GetStarted().AsTime()
		end := Later(now, at)
		list = append(list, bar{
			worker: op.GetWorker(), operation: op.GetName(), name: nameOf(op.GetTarget(), op.GetName(), op.GetMnemonic()),
			parts: [4]time.Time{at, at, end, end}, waited: max(at.Sub(op.GetQueued().AsTime()), 0),
		})
	}
	return list
}

// News returns the bars that the page does not have yet, and those of all running actions.
func (l *Line) News(running []*admin.Operation, now time.Time) []byte {
	m := laneMessage{Origin: now.UnixMilli()}
	now = now.Truncate(time.Millisecond)
	m.Running = m.rows(barsOf(running, now))
	m.Ended = m.rows(l.ran)
	m.waiting(l.Waiting)
	l.ran = nil
	return m.json()
}

// A laneMessage sends bars to the script of the page. Times are in milliseconds.
type laneMessage struct {
	// Origin is the start of the time line; times of bars are relative to it.
	Origin  int64    `json:"origin"`
	Workers []string `json:"workers"`
	Ended   []barRow `json:"ended"`
	Running []barRow `json:"running"`
	// Waits has pairs: a second, and how many of the waiting actions were queued in it.
	Waits [][2]int64 `json:"waits"`
	known map[string]int
}

// A barRow is a bar: the index of its worker, four times, 1 if it failed, its operation, its name
// and how long it waited.
type barRow [9]any

func (m *laneMessage) rows(list []bar) []barRow {
	if m.known == nil {
		m.known = map[string]int{}
	}
	rows := make([]barRow, 0, len(list))
	for _, b := range list {
		worker, known := m.known[b.worker]
		if !known {
			worker = len(m.Workers)
			m.known[b.worker] = worker
			m.Workers = append(m.Workers, text.Worker(b.worker))
		}
		row := barRow{0: worker, 5: 0, 6: text.OperationID(b.operation), 7: b.name, 8: b.waited.Milliseconds()}
		for i, at := range b.parts {
			row[1+i] = at.UnixMilli() - m.Origin
		}
		if b.failed {
			row[5] = 1
		}
		rows = append(rows, row)
	}
	return rows
}

// waiting adds the waiting actions.
func (m *laneMessage) waiting(since []time.Time) {
	counts := map[int64]int64{}
	for _, at := range since {
		counts[at.Truncate(time.Second).UnixMilli()]++
	}
	m.Waits = make([][2]int64, 0, len(counts))
	for _, at := range slices.Sorted(maps.Keys(counts)) {
		m.Waits = append(m.Waits, [2]int64{at - m.Origin, counts[at]})
	}
}

func (m *laneMessage) json() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		return nil // every field can be encoded
	}
	return b
}

// Lanes is the time line of a build as the page shows it: a lane for each position of a worker,
// with its actions in sequence.
type Lanes struct {
	Lanes []Lane
	// More is the number of lanes that are not drawn, Most the maximum number of drawn lanes. Each
	// is Lane pixels high, with a pixel between two.
	More, Most, Lane int
	// Have is the time up to which the page has completed actions, Span the length of the time
	// line; both in milliseconds.
	Have, Span int64
	// Paths has one path for each stage with all its bars, whatever the number of actions.
	Paths []Path
	// Data has the actions for the script, which shows the name of the one under the pointer, and
	// adds new ones.
	Data template.JS
	// Waits is the path of the number of actions that waited for a worker, averaged over each of
	// 240 parts of the time line. MostWaits is the largest, rounded up.
	Waits     string
	MostWaits int
	// Kept: the page keeps the drawing that it has, and only its position is given.
	Kept bool
}

// A Lane is a position of a worker.
type Lane struct{ Name string }

// A Path has all bars of one stage.
type Path struct {
	Class, Name string
	D           template.HTMLAttr
	d           strings.Builder
}

// Height returns the height of all lanes.
func (l *Lanes) Height() int { return l.Lane * len(l.Lanes) }

// Draw draws completed and running actions.
func (l *Line) Draw(running []*admin.Operation, now time.Time) *Lanes {
	if l.Following {
		return &Lanes{Kept: true}
	}
	ran, runs := l.ran, barsOf(running, now)
	drawn := &Lanes{Most: maxLanes, Lane: 9}
	m := laneMessage{known: map[string]int{}}
	if len(ran)+len(runs) == 0 {
		m.Origin = now.UnixMilli()
	}
	if len(l.Waiting) > 0 {
		drawn.Span = now.UnixMilli()
	}
	var names []string
	for i, b := range slices.Concat(ran, runs) {
		if at := b.parts[0].Add(-b.waited).UnixMilli(); i == 0 || at < m.Origin {
			m.Origin = at
		}
		drawn.Span = max(drawn.Span, b.parts[3].UnixMilli())
		if i < len(ran) {
			drawn.Have = max(drawn.Have, b.parts[3].UnixMilli())
		}
		if _, known := m.known[b.worker]; !known {
			m.known[b.worker] = 0
			names = append(names, b.worker)
		}
	}
	for _, since := range l.Waiting {
		m.Origin = min(m.Origin, since.Truncate(time.Second).UnixMilli())
	}
	slices.SortFunc(names, byNumbers)
	drawn.Span = max(drawn.Span-m.Origin, 1)
	drawn.More = max(len(names)-maxLanes, 0)
	names = names[:min(len(names), maxLanes)]
	clear(m.known)
	for i, name := range names {
		m.known[name] = i
		drawn.Lanes = append(drawn.Lanes, Lane{text.Worker(name)})
		m.Workers = append(m.Workers, text.Worker(name))
	}
	if len(names) <= fewLanes {
		drawn.Lane *= 2
	}
	left := func(b bar) bool { _, drawn := m.known[b.worker]; return !drawn }
	ran, runs = slices.DeleteFunc(slices.Clone(ran), left), slices.DeleteFunc(runs, left)
	m.Ended, m.Running = m.rows(ran), m.rows(runs)
	m.waiting(l.Waiting)
	drawn.Data = template.JS(m.json()) // encoding/json escapes </script>
	drawn.bars(m.Ended, m.Running)
	drawn.wait(slices.Concat(m.Ended, m.Running), m.Waits)
	return drawn
}

// bars draws rows, whose workers are the lanes.
func (l *Lanes) bars(ended, running []barRow) {
	paths := []*Path{
		{Class: "fetch", Name: "inputs, and waiting on the worker"},
		{Class: "run", Name: "execution"},
		{Class: "bad", Name: "execution that failed"},
		{Class: "upload", Name: "outputs and report"},
		{Class: "now", Name: "runs now"},
	}
	add := func(path *Path, lane any, from, to int64, always bool) {
		if to -= from; always || to*noPart > l.Span {
			fmt.Fprintf(&path.d, "M%d %dh%dv%dh-%[3]dz", from, lane.(int)*l.Lane, max(to, 1), l.Lane-1)
		}
	}
	for _, row := range ended {
		at := func(i int) int64 { return row[i].(int64) }
		add(paths[0], row[0], at(1), at(2), false)
		add(paths[1+row[5].(int)], row[0], at(2), at(3), true)
		add(paths[3], row[0], at(3), at(4), false)
	}
	for _, row := range running {
		add(paths[4], row[0], row[1].(int64), row[4].(int64), true)
	}
	for _, path := range paths {
		l.Paths = append(l.Paths, Path{Class: path.Class, Name: path.Name, D: template.HTMLAttr(`d="` + path.d.String() + `"`)})
	}
}

// wait draws how many actions were waiting at each time: those of rows before they ran, and those
// that still wait. The script of the page does the same.
func (l *Lanes) wait(rows []barRow, waits [][2]int64) {
	var sums [waitBins]float64
	per := float64(l.Span) / waitBins
	add := func(from, until, n int64) {
		for b := int(float64(from) / per); b < waitBins && float64(b)*per < float64(until); b++ {
			sums[b] += float64(n) * (min(float64(until), float64(b+1)*per) - max(float64(from), float64(b)*per)) / per
		}
	}
	for _, row := range rows {
		until := row[1].(int64)
		add(max(until-row[8].(int64), 0), until, 1)
	}
	for _, since := range waits {
		add(max(since[0], 0), l.Span, since[1])
	}
	l.MostWaits = int(math.Ceil(slices.Max(sums[:])))
	var path strings.Builder
	fmt.Fprintf(&path, "M0,%d", waitHeight)
	for _, n := range sums {
		fmt.Fprintf(&path, "V%.1fh1", waitHeight*(1-n/float64(max(l.MostWaits, 1))))
	}
	fmt.Fprintf(&path, "V%dZ", waitHeight)
	l.Waits = path.String()
}

// byNumbers orders the keys of workers with numbers by value: w2 comes before w10.
func byNumbers(a, b string) int {
	for a != "" && b != "" {
		x, y := run(a), run(b)
		if isDigit(a[0]) && isDigit(b[0]) {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
		} else if c := cmp.Compare(a[:x], b[:y]); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(a, b)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// run returns the length of the beginning of s that consists only of digits, or only of other
// characters.
func run(s string) int {
	n := 1
	for n < len(s) && isDigit(s[n]) == isDigit(s[0]) {
		n++
	}
	return n
}
