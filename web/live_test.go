package web

import (
	"context"
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/timeline"
)

// A grownView is the data of a page with a given size and given additions.
type grownView struct {
	Text string
	size int64
	news string
}

func (v *grownView) held() int64 { return v.size }

func (v *grownView) grown() (event string, data []byte) { return "lanes", []byte(v.news) }

// A following is a viewer of a page whose data the test sets.
type following struct {
	*follower
	t    *testing.T
	r    *http.Request
	w    *connection
	data *grownView
	err  error
}

func newFollowing(t *testing.T) *following {
	t.Helper()
	d := newBrowser(t, true).site.display
	d.templates["grown"] = template.Must(template.New("main").Parse("{{.Data.Text}}"))
	f := &following{t: t, r: httptest.NewRequest(http.MethodGet, "/", http.NoBody), w: &connection{ResponseRecorder: httptest.NewRecorder()}, data: &grownView{}}
	f.follower = d.follower(events{yield: func() {}}.to(f.w), "grown", func(context.Context, *http.Request) (any, error) {
		return f.data, f.err
	})
	return f
}

// next runs a round, and returns its output and whether the stream continues.
func (f *following) next() (sent string, goes bool) {
	f.w.Body.Reset()
	goes = f.round(f.r)
	return f.w.Body.String(), goes
}

// expect runs a round and checks its output.
func (f *following) expect(want string, wantGoes bool) {
	f.t.Helper()
	if sent, goes := f.next(); goes != wantGoes || (want == "") != (sent == "") || !strings.Contains(sent, want) {
		f.t.Errorf("a round sends %.100q, goes on: %t; want %q, %t", sent, goes, want, wantGoes)
	}
}

// TestPagesOutlastPassingErrors has a page fail for a while, and then permanently.
func TestPagesOutlastPassingErrors(t *testing.T) {
	f := newFollowing(t)
	f.data.Text = "first"
	f.err = status.Error(codes.Unavailable, "others look at large pages")
	f.expect("event: alive", true)
	f.err = nil
	f.expect("data: first", true)
	f.data.Text, f.err = "second", status.Error(codes.DeadlineExceeded, "slow")
	f.expect("", true)
	f.err = nil
	f.expect("data: second", true)
	f.expect("", true)
	f.err = status.Error(codes.NotFound, "it is not there")
	f.expect("event: gone\ndata: it is not there", false)
}

// TestPagesOutlastWantOfMemory has no room for a large part of a page for a while. Another stream
// sends the additions that this one could not send.
func TestPagesOutlastWantOfMemory(t *testing.T) {
	f := newFollowing(t)
	f.data.Text = "first"
	f.expect("data: first", true)
	leave, ok := f.budget.unread.TakeUnits("", unitsOf(unlimited/16), func() {})
	if !ok {
		t.Fatal("no room")
	}
	f.data.Text = strings.Repeat("x", usualAnswer+1)
	f.expect("", true)
	leave()
	f.expect("data: xxx", true)
	if leave, ok = f.budget.unread.TakeUnits("", unitsOf(unlimited/16), func() {}); !ok {
		t.Fatal("no room")
	}
	defer leave()
	f.data.news = f.data.Text
	f.expect("", false)
}

// TestPagesThatGrow has the data of a page grow: its reservation grows too, and the stream ends
// when there is no room.
func TestPagesThatGrow(t *testing.T) {
	f := newFollowing(t)
	f.budget.held = newBudget(1 << 20).held // for one large build
	f.data.Text, f.data.size = "x", 1
	f.expect("data: x", true)
	for _, size := range []int64{usualAnswer + 1, maxBuilt * actionBytes} {
		f.data.size = size
		f.expect("", true)
		if f.keeps.units != unitsOf(size) {
			t.Errorf("%d bytes have %d units", size, f.keeps.units)
		}
	}
	other := newFollowing(t)
	other.budget.held = f.budget.held
	other.data.Text = "y"
	other.expect("data: y", true)
	other.data.size = usualAnswer + 1
	other.expect(errCrowded.Error(), false)
	f.keeps.end()
	if leave, ok := f.budget.held.TakeUnits("", unitsOf(maxBuilt*actionBytes), func() {}); !ok {
		t.Error("the room is not given back")
	} else {
		leave()
	}
}

// A failingRecords lists one record per page, the latest first, and fails at a given page.
type failingRecords struct {
	admin.SchedulerServer
	records []*historypb.Record
	failsAt int
}

func (f *failingRecords) ListRecords(_ context.Context, req *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error) {
	i := len(req.GetPageToken())
	if i == f.failsAt {
		return nil, status.Error(codes.Unavailable, "later")
	}
	resp := &admin.ListRecordsResponse{}
	if r := f.records[i]; !r.GetEnded().AsTime().Before(req.GetSince().AsTime()) {
		resp.Records = append(resp.Records, r)
	}
	if i+1 < len(f.records) {
		resp.NextPageToken = strings.Repeat("x", i+1)
	}
	return resp, nil
}

// TestBuildsOutlastPassingErrors has the listing of a build's records fail halfway. The next
// attempt reads the rest, and counts each record once.
func TestBuildsOutlastPassingErrors(t *testing.T) {
	from := &failingRecords{failsAt: 1}
	for i, id := range []string{"c", "b", "a"} {
		ended := timestamppb.New(time.Unix(1e9, 0).Add(-time.Duration(i) * time.Hour))
		from.records = append(from.records, &historypb.Record{Operation: id, Invocation: "i", Queued: ended, Ended: ended})
	}
	b := &builder{pages: &buildPages{Source: &answers.Source{Scheduler: from}}, known: map[string]time.Time{}, line: &timeline.Line{}}
	b.view.Invocation = "i"
	if err := b.read(t.Context(), b.pattern()); !passing(err) {
		t.Errorf("the records fail with %v", err)
	}
	from.failsAt = -1
	if err := b.read(t.Context(), b.pattern()); err != nil || b.view.Total != len(from.records) {
		t.Errorf("%d records are read, not %d: %v", b.view.Total, len(from.records), err)
	}
}
