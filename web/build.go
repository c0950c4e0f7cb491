package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded/least"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/text"
	"github.com/forerunner-build/forerunner/web/timeline"
)

const (
	// maxBuilt and maxBuiltBytes limit the completed actions that the page of a build shows.
	maxBuilt, maxBuiltBytes = timeline.Most, 32 << 20
	// maxOpen limits the queued and running actions that the page shows.
	maxOpen = 10_000
	// maxNamed limits the lists of targets, failures and mnemonics.
	maxNamed = 20
	// lateness is the maximum delay of a record: an operation that ended earlier may get its record
	// this much later.
	lateness = 10 * time.Second
	// leastWait is the shortest wait that the list of waits shows.
	leastWait = time.Second
)

// A buildView is an invocation.
type buildView struct {
	Invocation, User string
	// Total counts completed operations; Running and Waiting count the others.
	Total, Running, Waiting int
	Outcomes                []tally
	Mnemonics               []mnemonicRow
	Failed, Slowest         []recordRow // the last maxNamed failures, and the longest runs
	Waited                  []recordRow // the longest waits of at least leastWait
	MoreFailed              int
	First, Last             time.Time
	Lanes                   *timeline.Lanes
	Cut, OpenCut            bool // there are more than maxBuilt or maxOpen actions
	// Published has the build events; nil if there are none.
	Published *published

	mnemonics map[string]*mnemonicRow
	outcomes  map[historypb.Outcome]int
	failures  map[failedKind]int
	failed    least.List[recordRow]
	slowest   least.List[recordRow]
	waited    least.List[recordRow]
	news      []byte // additions to the time line
}

// actionBytes is the memory that each action of a build takes while its page is open.
const actionBytes = 300

// held implements holding.
func (v *buildView) held() int64 { return int64(v.Total) * actionBytes }

// grown implements growing.
func (v *buildView) grown() (event string, data []byte) { return "lanes", v.news }

// form changes when viewers must reload the page to see all of it.
func (v *buildView) form() string { return fmt.Sprint(v.Live()) }

// Live reports whether an operation of the build is queued or running, or its events continue.
func (v *buildView) Live() bool { return v.Running+v.Waiting > 0 || v.Published.goesOn() }

// Took returns the time from the first operation's queueing to the last one's end.
func (v *buildView) Took() time.Duration { return v.Last.Sub(v.First) }

type tally struct {
	Name, Class string
	Count       int
}

// A mnemonicRow counts the actions of one mnemonic by their outcomes.
type mnemonicRow struct {
	Name                  string
	Count, Cached, Failed int
	Ran                   time.Duration // total duration of runs
}

// Hits returns the share of action cache hits.
func (m mnemonicRow) Hits() charts.Meter {
	share := float64(m.Cached) / float64(m.Count)
	return charts.MeterOf(text.Percent(share)+" from the action cache", share)
}

// A builder makes the page of an invocation for one viewer, repeatedly while the page is open. It
// reads each record once.
type builder struct {
	pages *buildPages
	view  buildView
	// known has the operations whose records were read and may be listed again: those that ended
	// after last, less lateness.
	known map[string]time.Time
	last  time.Time
	line  *timeline.Line
}

// A buildPages shows invocations.
type buildPages struct {
	*display
	*answers.Source
}

// serve sends the page of an invocation.
func (p *buildPages) serve(w http.ResponseWriter, r *http.Request) {
	b := &builder{pages: p, known: map[string]time.Time{}, line: &timeline.Line{Following: r.Header.Get("Accept") == eventStream}}
	id, isTrace := strings.CutSuffix(r.PathValue("invocation"), traceSuffix)
	b.view.Invocation = id
	if isTrace {
		b.line.Following = false
		b.trace(w, r)
		return
	}
	if have, err := strconv.ParseInt(r.FormValue("have"), 10, 64); err == nil {
		b.line.Have = time.UnixMilli(have).Add(-lateness)
	}
	p.page("build", b.load).ServeHTTP(w, r)
}

// pattern matches the operations of the invocation. It may match others, whose invocations differ
// only in characters that patterns cannot contain.
func (b *builder) pattern() *admin.Pattern {
	return &admin.Pattern{Attributes: map[string]string{"invocation": text.Glob(b.view.Invocation)}}
}

// load implements loader.
func (b *builder) load(ctx context.Context, _ *http.Request) (any, error) {
	p := b.pattern()
	if err := b.read(ctx, p); err != nil {
		return nil, err
	}
	v := b.view
	running, err := b.open(ctx, p, &v)
	if err != nil {
		return nil, err
	}
	if v.Published, err = b.published(ctx); err != nil {
		return nil, err
	}
	if v.Total+v.Running+v.Waiting == 0 && v.Published == nil {
		return nil, status.Errorf(codes.NotFound, "invocation %q is unknown, or ended too long ago", v.Invocation)
	}
	now := time.Now()
	if v.Running > 0 {
		v.Last = now
	}
	v.finish()
	if b.line.Following {
		v.news = b.line.News(running, now)
	}
	if v.Live() || b.line.Known > 0 {
		v.Lanes = b.line.Draw(running, now)
	}
	return &v, nil
}

// open counts the operations that have not ended, and returns the running ones.
func (b *builder) open(ctx context.Context, p *admin.Pattern, v *buildView) (running []*admin.Operation, err error) {
	b.line.Waiting = nil
	for token := ""; ; {
		list, err := answers.Get(ctx, b.pages.Source, answers.KeyFor(ctx, "build "+v.Invocation+" "+token), func(ctx context.Context) (*admin.ListOperationsResponse, error) {
			return b.pages.Scheduler.ListOperations(ctx, &admin.ListOperationsRequest{Pattern: p, PageToken: token})
		})
		if err != nil {
			return nil, err
		}
		for _, op := range list.GetOperations() {
			switch {
			case op.GetInvocation() != v.Invocation:
			case op.GetWorker() == "":
				v.Waiting++
				b.line.Waiting = append(b.line.Waiting, op.GetQueued().AsTime())
			default:
				v.Running++
				running = append(running, op)
			}
		}
		if token = list.GetNextPageToken(); token == "" {
			return running, nil
		}
		if v.Waiting+v.Running >= maxOpen {
			v.OpenCut = true
			return running, nil
		}
	}
}

// read reads the new records and counts them.
func (b *builder) read(ctx context.Context, p *admin.Pattern) error {
	req := &admin.ListRecordsRequest{Pattern: p}
	var since time.Time
	last := b.last
	if !b.last.IsZero() {
		since = b.last.Add(-lateness)
		req.Since = timestamppb.New(since)
	}
	for read, bytes := 0, 0; read < maxBuilt && bytes < maxBuiltBytes; {
		list, err := b.pages.Scheduler.ListRecords(ctx, req)
		if err != nil {
			return err
		}
		read += len(list.GetRecords())
		for _, r := range list.GetRecords() {
			if _, known := b.known[r.GetOperation()]; known || r.GetInvocation() != b.view.Invocation {
				continue
			}
			b.known[r.GetOperation()] = r.GetEnded().AsTime()
			last = timeline.Later(last, r.GetEnded().AsTime())
			bytes += lighten(r)
			b.view.count(r)
			b.line.Add(r, outcomeClass(r.GetOutcome()) == "failed")
		}
		if req.PageToken = list.GetNextPageToken(); req.PageToken == "" {
			break
		}
		b.view.Cut = b.view.Cut || read >= maxBuilt || bytes >= maxBuiltBytes
	}
	b.last = last // not earlier: if a page of the list failed, records before last may be unread
	since = b.last.Add(-lateness)
	maps.DeleteFunc(b.known, func(_ string, ended time.Time) bool { return ended.Before(since) })
	return nil
}

// lighten removes the parts of a record that the page of a build does not show, and returns its new
// size.
func lighten(r *historypb.Record) int {
	if r.GetTarget() != "" {
		r.Arguments = nil
	}
	r.Outputs, r.Stdout, r.Stderr, r.Correlated, r.Configuration = nil, nil, nil, "", ""
	if r.GetMetadata() != nil {
		r.Metadata.AuxiliaryMetadata = nil
	}
	return proto.Size(r)
}

func (v *buildView) count(r *historypb.Record) {
	if v.mnemonics == nil {
		v.mnemonics, v.outcomes, v.failures = map[string]*mnemonicRow{}, map[historypb.Outcome]int{}, map[failedKind]int{}
		v.failed = least.Of(maxNamed, func(a, b recordRow) int { return b.Ended.Compare(a.Ended) })
		v.slowest = least.Of(maxNamed, func(a, b recordRow) int { return cmp.Compare(b.Took, a.Took) })
		v.waited = least.Of(maxNamed, func(a, b recordRow) int { return cmp.Compare(b.Queued, a.Queued) })
	}
	v.Total++
	row := rowOf(r)
	v.User = cmp.Or(v.User, r.GetUser())
	if queued := r.GetQueued().AsTime(); v.First.IsZero() || queued.Before(v.First) {
		v.First = queued
	}
	v.Last = timeline.Later(v.Last, row.Ended)
	v.outcomes[r.GetOutcome()]++
	m := v.mnemonics[r.GetMnemonic()]
	if m == nil {
		m = &mnemonicRow{Name: r.GetMnemonic()}
		v.mnemonics[r.GetMnemonic()] = m
	}
	m.Count++
	m.Ran += row.Took
	if r.GetOutcome() == historypb.Outcome_CACHED {
		m.Cached++
	}
	if row.Class() == "failed" {
		m.Failed++
		v.MoreFailed++
		v.failures[failedKind{r.GetTarget(), r.GetMnemonic()}]++
		v.failed.Add(row)
	}
	if row.Took > 0 {
		v.slowest.Add(row)
	}
	if row.Queued >= leastWait {
		v.waited.Add(row)
	}
}

// finish turns the counts into the lists of the page.
func (v *buildView) finish() {
	for o, n := range v.outcomes {
		v.Outcomes = append(v.Outcomes, tally{Name: facts.OutcomeName(o), Class: outcomeClass(o), Count: n})
	}
	slices.SortFunc(v.Outcomes, func(a, b tally) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	for _, m := range v.mnemonics {
		v.Mnemonics = append(v.Mnemonics, *m)
	}
	slices.SortFunc(v.Mnemonics, func(a, b mnemonicRow) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	v.Mnemonics = v.Mnemonics[:min(len(v.Mnemonics), maxNamed)]
	if v.Total > 0 {
		v.Failed, v.Slowest = slices.Clone(v.failed.Sorted()), slices.Clone(v.slowest.Sorted())
		v.Waited = slices.Clone(v.waited.Sorted())
	}
	v.MoreFailed -= len(v.Failed)
	if v.Published != nil {
		v.Published.known = v.failures
	}
}
