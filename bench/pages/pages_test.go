package pages

import (
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
)

// TestPages checks that all pages answer on a small farm that dispatches, with and without a
// viewer, and that each figure has a row.
func TestPages(t *testing.T) {
	f, err := startPagesFarm(t.Context(), pagesShape{
		queued: 200, workers: 10, quick: 4, instances: 3, perInvocation: 7, window: time.Second, pause: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	figures, err := f.measure(t.Context(), 1)
	if err != nil {
		t.Error(err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	if figures.alone[0] == 0 || figures.viewed[0] == 0 {
		t.Errorf("%v and %v actions a second", figures.alone, figures.viewed)
	}
	if rows := figures.rows(f.shape); len(rows) != len(shownPages(""))+1+len(pageQuestions()) {
		t.Errorf("rows %v", rows)
	}
}

// TestRecords checks that a scheduler with records dispatches, that pages with records answer, and
// that each figure has a row.
func TestRecords(t *testing.T) {
	shape := recordsShape{
		dispatch: pagesShape{queued: 100, workers: 10, quick: 4, instances: 3, perInvocation: 7, window: 100 * time.Millisecond},
		records:  3000, build: 1000,
	}
	figures, err := measureRecords(t.Context(), shape, t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		for _, p := range []pairs{figures.full, figures.half} {
			if p.without[i].Rate == 0 || p.with[i].Rate == 0 || p.with[i].p99 < p.with[i].p50 || p.with[i].p50 == 0 {
				t.Errorf("without records %v, with records %v", p.without, p.with)
			}
		}
	}
	if figures.bytes < 100 {
		t.Errorf("a record has %f bytes", figures.bytes)
	}
	sizes := map[string]int{}
	for row, loads := range figures.loads {
		sizes[row] = loads[0].bytes
	}
	if sizes["search_failed"] <= sizes["search_nothing"] || sizes["search_slowest"] <= sizes["search_nothing"] {
		t.Errorf("pages have %v bytes: nothing is found", sizes)
	}
	if rows := figures.rows(shape); len(rows) != 6+len(recordPages("", 0)) {
		t.Errorf("rows %v", rows)
	}
}

// TestPairsBesideOthers repeats a pair during which other programs used the CPUs, as many as there
// are runs; after that a row says so.
func TestPairsBesideOthers(t *testing.T) {
	quiet, loud := pace{Turn: report.Turn{Rate: 100}}, pace{Turn: report.Turn{Rate: 10, Others: 0.5}}
	var p pairs
	for _, turns := range [][2]pace{{quiet, loud}, {quiet, quiet}, {loud, quiet}} {
		p.add(turns, 2)
	}
	if got := p.turns().Ratio("row", "records", p.note()); len(p.with) != 1 || *got.Value != 1 || strings.Contains(got.Note, "other programs") {
		t.Errorf("%d pairs, row %v", len(p.with), got)
	}
	p.add([2]pace{quiet, loud}, 2)
	if got := p.turns().Ratio("row", "records", p.note()); len(p.with) != 2 || !strings.Contains(got.Note, "1 of them while other programs used the CPUs") {
		t.Errorf("%d pairs, row %v", len(p.with), got)
	}
}
