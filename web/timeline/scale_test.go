package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	for span, want := range map[time.Duration]string{
		0:                        "0@0%",
		time.Millisecond:         "0@0.00% 1ms@100.00%end",
		100 * time.Millisecond:   "0@0.00% 20ms@20.00% 40ms@40.00% 60ms@60.00% 80ms@80.00% 100ms@100.00%end",
		1100 * time.Millisecond:  "0@0.00% 200ms@18.18% 400ms@36.36% 600ms@54.55% 800ms@72.73% 1s@90.91%",
		23800 * time.Millisecond: "0@0.00% 5s@21.01% 10s@42.02% 15s@63.03% 20s@84.03%",
		98 * time.Second:         "0@0.00% 30s@30.61% 1m@61.22% 1m30s@91.84%",
		337 * time.Second:        "0@0.00% 1m@17.80% 2m@35.61% 3m@53.41% 4m@71.22% 5m@89.02%",
		5 * time.Hour:            "0@0.00% 1h@20.00% 2h@40.00% 3h@60.00% 4h@80.00% 5h@100.00%end",
		40 * 24 * time.Hour:      "0@0.00% 216h@22.50% 432h@45.00% 648h@67.50% 864h@90.00%",
	} {
		var got []string
		for _, tick := range (&Lanes{Span: span.Milliseconds()}).Ticks() {
			end := ""
			if tick.Anchor == "end" {
				end = "end"
			}
			got = append(got, fmt.Sprintf("%s@%s%s", tick.Text, tick.At, end))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", span, s, want)
		}
	}
}
