package pages

import (
	"testing"
	"time"
)

// TestPages sees that all pages answer over a small farm that dispatches, with and without a viewer,
// and that each figure has its row.
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
