package pages

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/pause"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A recordsShape is the size of a measurement of records.
type recordsShape struct {
	dispatch pagesShape
	records  int           // number of records in the store
	build    int           // actions of the build whose page is shown
	rest     time.Duration // before each page, because pages pause after each request to the scheduler
}

// manyRecords returns the shape for the rows.
func manyRecords() recordsShape {
	return recordsShape{
		dispatch: pagesShape{queued: 20_000, workers: 1000, quick: 100, instances: 20, perInvocation: 25, window: 10 * time.Second},
		records:  1_000_000, build: 20_000, rest: time.Second,
	}
}

// recordsFigures are the results of pages with records.
type recordsFigures struct {
	full, half pairs   // dispatch with all cores busy, and at half of that rate
	lost       uint64  // records that were not stored
	bytes      float64 // per record
	loads      map[string][]pageLoad
}

// pairs are turns of a scheduler without records and of one with.
type pairs struct {
	without, with []pace
	repeated      int // pairs that do not count, because other programs used the CPUs
}

// A pace is a turn, in which p50 and p99 are how long workers waited for their next action, in µs.
type pace struct {
	report.Turn
	p50, p99 float64
}

func (t pace) String() string {
	return fmt.Sprintf("%.0f actions/s, %.1f µs of CPU each, 99 %% of calls in %.0f µs", t.Rate, t.CPU, t.p99)
}

// mostOthers is the share of the machine's CPU time that other programs may have during a turn: who
// waits for a CPU looks like one who waits for a record.
const mostOthers = 0.05

// measureRecords measures dispatch without and with records, and then pages with many records. It
// creates folders in dir.
func measureRecords(ctx context.Context, shape recordsShape, dir string, runs int) (*recordsFigures, error) {
	f := &recordsFigures{loads: map[string][]pageLoad{}}
	if err := f.dispatch(ctx, shape.dispatch, filepath.Join(dir, "dispatch"), runs); err != nil {
		return nil, fmt.Errorf("dispatch with records: %w", err)
	}
	if err := f.pages(ctx, shape, filepath.Join(dir, "pages"), runs); err != nil {
		return nil, fmt.Errorf("pages over records: %w", err)
	}
	return f, nil
}

// dispatch measures two schedulers in alternation, of which one stores records.
func (p *recordsFigures) dispatch(ctx context.Context, shape pagesShape, folder string, runs int) (err error) {
	store, err := history.Open(folder, history.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	plain, err := startPagesFarm(ctx, shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.close()) }()
	plain.calling.Lock() // until its first window
	defer plain.calling.Unlock()
	shape.records = store
	keeping, err := startPagesFarm(ctx, shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeping.close()) }()
	keeping.calling.Lock()
	defer keeping.calling.Unlock()
	if err := p.full.measure(ctx, plain, keeping, runs); err != nil {
		return err
	}
	between := 2 * float64(shape.quick) / median(p.full.without, func(t pace) float64 { return t.Rate })
	for _, f := range []*pagesFarm{plain, keeping} {
		f.between.Store(int64(between * float64(time.Second)))
	}
	err = p.half.measure(ctx, plain, keeping, runs)
	p.lost = keeping.lost()
	return err
}

// measure alternates turns of two schedulers. A pair during which other programs used the CPUs is
// repeated, as many as there are runs at most; then such pairs count, and the rows say so. The
// caller holds calling of both.
func (p *pairs) measure(ctx context.Context, plain, keeping *pagesFarm, runs int) (err error) {
	for run := -1; len(p.with) < runs; run++ { // the first run fills up the heap
		var turns [2]pace
		order := []int{0, 1}
		if run%2 != 0 {
			slices.Reverse(order)
		}
		for _, which := range order {
			if turns[which], err = []*pagesFarm{plain, keeping}[which].turn(ctx); err != nil {
				return err
			}
		}
		if run >= 0 {
			p.add(turns, runs)
		}
	}
	return nil
}

// add adds a pair, unless it is to be repeated.
func (p *pairs) add(turns [2]pace, runs int) {
	what := fmt.Sprintf("without records %v; with records %v", turns[0], turns[1])
	others := max(turns[0].Others, turns[1].Others)
	if others > mostOthers {
		what += fmt.Sprintf("; other programs had %.0f %% of the CPUs", 100*others)
		if p.repeated < runs {
			p.repeated++
			report.Progress("this pair is repeated: %s", what)
			return
		}
	}
	p.without, p.with = append(p.without, turns[0]), append(p.with, turns[1])
	report.Progress("pair %d of %d: %s", len(p.with), runs, what)
}

// turns returns the pairs without what they say of waiting.
func (p *pairs) turns() (all report.Pairs) {
	for i, with := range p.with {
		all = append(all, report.Pair{Without: p.without[i].Turn, With: with.Turn})
	}
	return all
}

// note says how many pairs there are, and whether other programs used the CPUs.
func (p *pairs) note() string {
	text, disturbed := fmt.Sprintf("%d pairs", len(p.with)), 0
	for _, pair := range p.turns() {
		if pair.Others() > mostOthers {
			disturbed++
		}
	}
	if disturbed > 0 {
		text += fmt.Sprintf(", %d of them while other programs used the CPUs", disturbed)
	}
	return text
}

// median returns that of a figure of turns.
func median(turns []pace, of func(pace) float64) float64 {
	var values []float64
	for _, t := range turns {
		values = append(values, of(t))
	}
	return report.Median(values)
}

// turn lets the workers call for a window. It returns the pace of the actions when all have their
// records. It begins without the garbage of the other farm's turn. The caller must hold calling.
func (f *pagesFarm) turn(ctx context.Context) (pace, error) {
	runtime.GC()
	f.calls.take()
	began, ended, cpu, use := time.Now(), f.ended.Load(), report.CPUTime(), report.NewCPUUse()
	f.calling.Unlock()
	err := pause.For(ctx, f.shape.window)
	f.calling.Lock()
	for err == nil && f.shape.records != nil && f.unrecorded() > int64(f.shape.quick) { // each worker reports its last action with its next call
		err = pause.For(ctx, time.Millisecond)
	}
	actions := float64(f.ended.Load() - ended)
	used := float64((report.CPUTime() - cpu).Microseconds())
	took := time.Since(began).Seconds()
	waits := f.calls.take()
	return pace{
		Turn: report.Turn{Rate: actions / took, CPU: used / actions, Others: use.Others()},
		p50:  report.Quantile(waits, 0.5), p99: report.Quantile(waits, 0.99),
	}, err
}

// unrecorded returns the number of completed actions that may still get a record.
func (f *pagesFarm) unrecorded() int64 {
	return f.ended.Load() - f.shape.records.Stats().Records - int64(f.lost())
}

// pages fills a store and requests the pages that show it.
func (p *recordsFigures) pages(ctx context.Context, shape recordsShape, folder string, runs int) (err error) {
	store, err := history.Open(folder, history.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	report.Progress("making %d records", shape.records)
	build, err := fillStore(ctx, store, shape)
	if err != nil {
		return err
	}
	stats := store.Stats()
	p.bytes = float64(stats.Bytes) / float64(stats.Records)
	f, err := startPagesFarm(ctx, pagesShape{instances: 1, perInvocation: 1, records: store})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	v, err := f.newViewer(ctx, nil)
	if err != nil {
		return err
	}
	defer v.close()
	for run := range runs {
		for _, page := range recordPages(build, run) {
			if err := pause.For(ctx, shape.rest); err != nil {
				return err
			}
			load, err := v.load(ctx, page)
			if err != nil {
				return fmt.Errorf("page %s: %w", page.row, err)
			}
			p.loads[page.row] = append(p.loads[page.row], load)
		}
		report.Progress("pages over records: %d of %d", run+1, runs)
	}
	return nil
}

// fillStore adds the records of many builds, and in the middle those of a large build, whose name
// it returns.
func fillStore(ctx context.Context, store *history.Store, shape recordsShape) (build string, err error) {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { store.Run(ctx); return nil })
	defer func() {
		stop()
		err = errors.Join(err, g.Wait())
	}()
	m := newMaker(time.Now().Add(-24 * time.Hour))
	build = m.name()
	invocation := ""
	for i := range shape.records {
		if i%madePerBuild == 0 {
			invocation = m.name()
		}
		name := invocation
		if from := (shape.records - shape.build) / 2; i >= from && i < from+shape.build {
			name = build
		}
		if err := addRecord(ctx, store, m.record(i, name)); err != nil {
			return "", err
		}
	}
	return build, nil
}

// addRecord adds a record, and waits if the store's queue is full.
func addRecord(ctx context.Context, store *history.Store, r *historypb.Record) error {
	for !store.Add(r) {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// recordPages returns the measured pages. Each run has its own addresses, because answers are
// reused within a second.
func recordPages(build string, run int) []shownPage {
	search := func(row, query string) shownPage {
		return shownPage{row: "search_" + row, path: fmt.Sprintf("/history?%s&run=%d", query, run)}
	}
	return []shownPage{
		{row: "build_page", path: "/builds/" + build},
		search("text", "q=package_4321:"),
		search("nothing", "q=there-is-no-such-target"),
		search("target", "q=target%3D//src/project_7/*:source_17"),
		search("failed", "show=failed&q=user%3Duser-42*"),
		search("slowest", "show=slowest"),
	}
}

// rows returns the rows of the figures.
func (p *recordsFigures) rows(shape recordsShape) []report.Row {
	rows := p.dispatchRows()
	size := report.NewRow("record_bytes", p.bytes, "B")
	size.Wanted = "≤ 1024"
	size.Note = fmt.Sprintf("of %d records, with their index", shape.records)
	rows = append(rows, size)
	for _, page := range recordPages("", 0) {
		var ms []float64
		for _, l := range p.loads[page.row] {
			ms = append(ms, l.took.Seconds()*1000)
		}
		name := fmt.Sprintf("%s_ms_%d", page.row, shape.records)
		if page.row == "build_page" {
			name = fmt.Sprintf("%s_ms_%d", page.row, shape.build)
		}
		r := report.NewRow(name, report.Median(ms), "ms")
		r.Wanted = "≤ 1000"
		r.Note = fmt.Sprintf("%s, %d times; %.0f KiB", report.Spread(ms), len(ms), float64(p.loads[page.row][0].bytes)/1024)
		rows = append(rows, r)
	}
	return rows
}

// dispatchRows returns the rows of dispatch without and with records.
func (p *recordsFigures) dispatchRows() []report.Row {
	const what = "records"
	full := p.full.turns().Ratio("records_dispatch_inside", what, p.full.note())
	full.Note += fmt.Sprintf("; %d records not kept", p.lost)
	cost := p.full.turns().Cost("record_cpu_us_inside", p.full.note())
	rows := []report.Row{full, cost, p.half.turns().Ratio("records_dispatch_half", what, p.half.note())}
	for _, wait := range []struct {
		row string
		of  func(pace) float64
	}{
		{"wait_p50_us_half", func(t pace) float64 { return t.p50 }},
		{"wait_p99_us_half", func(t pace) float64 { return t.p99 }},
	} {
		r := report.NewRow(wait.row, median(p.half.with, wait.of), "µs")
		r.Baseline = fmt.Sprintf("%.0f µs without records", median(p.half.without, wait.of))
		r.Note = fmt.Sprintf("at %.0f actions/s, %s", median(p.half.with, func(t pace) float64 { return t.Rate }), p.half.note())
		rows = append(rows, r)
	}
	return rows
}
