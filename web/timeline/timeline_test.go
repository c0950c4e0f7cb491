package timeline

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// TestLanes draws actions of workers whose names contain numbers; one action still runs.
func TestLanes(t *testing.T) {
	began := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &Line{}
	for _, worker := range []string{`{"host":"w10"}`, `{"host":"w2"}`, ""} {
		l.Add(&historypb.Record{
			Operation: "operations/of " + worker, Worker: worker, Queued: timestamppb.New(began),
			Started: timestamppb.New(began.Add(time.Second)), Ended: timestamppb.New(began.Add(3 * time.Second)),
		}, false)
	}
	running := []*admin.Operation{{
		Name: "operations/now", Worker: `{"host":"w1"}`, Queued: timestamppb.New(began), Started: timestamppb.New(began.Add(4 * time.Second)),
	}}
	l.Waiting = []time.Time{began.Add(5 * time.Second), began.Add(5100 * time.Millisecond)}
	drawn := l.Draw(running, began.Add(6*time.Second))
	if drawn.MostWaits != 3 || !strings.Contains(string(drawn.Data), `"waits":[[5000,2]]`) || !strings.HasSuffix(drawn.Waits, "V13.3h1V40Z") {
		t.Errorf("at most %d wait: %s, %s", drawn.MostWaits, drawn.Waits, drawn.Data)
	}
	var names []string
	for _, lane := range drawn.Lanes {
		names = append(names, lane.Name)
	}
	if l.Known != 2 || len(names) != 3 || names[0] != "host=w1" || names[1] != "host=w2" || names[2] != "host=w10" {
		t.Errorf("%d actions ran, the lanes are %q", l.Known, names)
	}
	if drawn.Span != 6000 || drawn.More != 0 || drawn.Height() != 3*drawn.Lane {
		t.Errorf("it shows %d ms on %d lanes of %d, %d more", drawn.Span, len(drawn.Lanes), drawn.Lane, drawn.More)
	}
	l = &Line{Following: true, Have: began.Add(time.Hour)}
	l.Add(&historypb.Record{Worker: "w", Started: timestamppb.New(began), Ended: timestamppb.New(began)}, true)
	if news := l.News(running, began.Add(6*time.Second)); !bytes.Contains(news, []byte(`"ended":[]`)) || !bytes.Contains(news, []byte(`"now"`)) {
		t.Errorf("a page that has all that ended is told %s", news)
	}
}
