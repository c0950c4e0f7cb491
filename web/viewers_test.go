package web

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/intake"
)

// TestCrowdedPages fills all places with live pages of one viewer. One of them must give its place
// to another viewer, and say so.
func TestCrowdedPages(t *testing.T) {
	b := newBrowser(t, true)
	b.site.display.viewers = intake.NewPermits(2)
	if _, ok := b.site.display.viewers.Take("", func() { t.Error("the older page makes room") }); !ok {
		t.Fatal("no room")
	}
	var last, told string
	b.follow("/workers", func(name, data string) bool {
		if last == "" {
			if _, ok := b.site.display.viewers.Take("another", func() {}); !ok {
				t.Error("another viewer has no room")
			}
		}
		last, told = name, data
		return true
	})
	if last != "gone" || strings.TrimSpace(told) != errCrowded.Error() {
		t.Errorf("the page ends with %q: %q", last, told)
	}
}
