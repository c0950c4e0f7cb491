package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/facts"
)

// A Kind is a selection of completed operations, or of builds.
type Kind struct {
	// Name is the kind's name in URLs and in the flag, Title its name on the page.
	Name, Title string
	choose      func(*admin.ListRecordsRequest)
}

// BuildsKind is the kind of builds that published events.
const BuildsKind = "builds"

// Kinds returns all kinds; the first selects everything.
func Kinds() []Kind {
	outcomes := func(list ...historypb.Outcome) func(*admin.ListRecordsRequest) {
		return func(req *admin.ListRecordsRequest) { req.Outcomes = list }
	}
	return []Kind{
		{"recent", "Recent", func(*admin.ListRecordsRequest) {}},
		{BuildsKind, "Builds", func(req *admin.ListRecordsRequest) { req.Builds = true }},
		{"failed", "Failed", outcomes(historypb.Outcome_FAILED, historypb.Outcome_ERROR, historypb.Outcome_OUT_OF_MEMORY, historypb.Outcome_TIMED_OUT)},
		{"slowest", "Slowest", func(req *admin.ListRecordsRequest) { req.Slowest = true }},
		{"retried", "Retried", func(req *admin.ListRecordsRequest) { req.Retried = true }},
		{"out-of-memory", "Out of memory", outcomes(historypb.Outcome_OUT_OF_MEMORY)},
		{"cached", "Cached", outcomes(historypb.Outcome_CACHED)},
	}
}

// RecordsOf returns the request for completed operations of a kind. typed is the text of the search
// box: name=value is a pattern, any other text must be part of a name. since limits the age of the
// operations; 0 means any age.
func RecordsOf(kind, typed string, since time.Duration) (*admin.ListRecordsRequest, error) {
	req := &admin.ListRecordsRequest{}
	kinds := Kinds()
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == cmp.Or(kind, kinds[0].Name) })
	if at < 0 {
		return nil, fmt.Errorf("there is no kind of operations %q", kind)
	}
	kinds[at].choose(req)
	var patterns, words []string
	for word := range strings.FieldsSeq(typed) {
		if isPattern(word) {
			patterns = append(patterns, word)
		} else {
			words = append(words, word)
		}
	}
	req.Text = strings.Join(words, " ")
	if len(patterns) > 0 {
		p, err := pattern.Parse(patterns...)
		if err != nil {
			return nil, err
		}
		req.Pattern = &admin.Pattern{Attributes: p.Map()}
	}
	if since > 0 {
		req.Since = timestamppb.New(time.Now().Add(-since))
	}
	return req, nil
}

// isPattern reports whether a word of the search box is a pattern.
func isPattern(word string) bool {
	name, _, is := strings.Cut(word, "=")
	return is && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

// ofOperations and ofBuilds are the names of patterns that only operations have, and only builds.
var ofOperations, ofBuilds = []string{"action", "mnemonic", "operation", "worker"}, []string{"command", "host"}

// elsewhere returns the text of the search box without what builds cannot be searched by or, if not
// builds, operations.
func elsewhere(typed string, builds bool) string {
	others := ofBuilds
	if builds {
		others = ofOperations
	}
	var words []string
	for word := range strings.FieldsSeq(typed) {
		if p, err := pattern.Parse(word); isPattern(word) && err == nil {
			known := p.Map()
			maps.DeleteFunc(known, func(name, _ string) bool { return slices.Contains(others, name) })
			word = names.Pairs(known)
		}
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// An age is a choice of the time within which operations ended.
type age struct {
	Name, Title string
	since       time.Duration
}

// times are the choices of age on the page, the default first.
var times = []age{
	{"all", "any time", 0}, {"1h", "the last hour", time.Hour}, {"24h", "the last day", 24 * time.Hour}, {"168h", "the last week", 7 * 24 * time.Hour},
}

// A recordsView is a page of the list of completed operations.
type recordsView struct {
	Kinds, Times      []choice
	Kind, Time, Typed string
	List              []recordRow
	Builds            []published
	Next              string // path of the next page; empty if there is none
	// Elsewhere is the path of the same search among builds or, on the list of builds, among
	// operations.
	Elsewhere string
}

// OfBuilds reports whether the page lists builds.
func (v *recordsView) OfBuilds() bool { return v.Kind == BuildsKind }

// A recordRow is a completed operation in a list.
type recordRow struct {
	*historypb.Record
	Ended        time.Time
	Queued, Took time.Duration
}

// Name returns the name of the operation in a list.
func (r recordRow) Name() string { return facts.Name(r.Record) }

func (r recordRow) Class() string { return outcomeClass(r.GetOutcome()) }
func (r recordRow) Word() string  { return facts.Outcome(r.Record) }

func rowOf(r *historypb.Record) recordRow {
	row := recordRow{Record: r, Ended: r.GetEnded().AsTime()}
	if r.GetStarted() != nil {
		row.Queued = max(r.GetStarted().AsTime().Sub(r.GetQueued().AsTime()), 0)
		row.Took = row.Ended.Sub(r.GetStarted().AsTime())
	}
	return row
}

// outcomeClass returns the CSS class of an outcome.
func outcomeClass(o historypb.Outcome) string {
	switch o {
	case historypb.Outcome_SUCCEEDED:
		return "completed"
	case historypb.Outcome_CACHED:
		return "cached"
	case historypb.Outcome_CANCELLED:
		return "queued"
	}
	return "failed"
}

func (p *recordPages) list(ctx context.Context, r *http.Request) (any, error) {
	v := &recordsView{Kind: r.FormValue("show"), Time: r.FormValue("time"), Typed: strings.TrimSpace(r.FormValue("q"))}
	query := url.Values{}
	for name, value := range map[string]string{"show": v.Kind, "time": v.Time, "q": v.Typed} {
		if value != "" {
			query.Set(name, value)
		}
	}
	with := func(name, value string) string {
		q := url.Values{}
		for n, list := range query {
			q[n] = list
		}
		q.Set(name, value)
		return "/history?" + q.Encode()
	}
	at := slices.IndexFunc(times, func(t age) bool { return t.Name == cmp.Or(v.Time, times[0].Name) })
	if at < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "there is no time %q", v.Time)
	}
	for i, t := range times {
		v.Times = append(v.Times, choice{t.Title, with("time", t.Name), i == at})
	}
	for i, k := range Kinds() {
		href := with("show", k.Name)
		if builds := k.Name == BuildsKind; builds != v.OfBuilds() {
			q := url.Values{"show": {k.Name}, "q": {elsewhere(v.Typed, builds)}, "time": {v.Time}}
			maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
			href = "/history?" + q.Encode()
			if v.Elsewhere == "" {
				v.Elsewhere = href
			}
		}
		v.Kinds = append(v.Kinds, choice{k.Title, href, k.Name == v.Kind || v.Kind == "" && i == 0})
	}
	req, err := RecordsOf(v.Kind, v.Typed, times[at].since)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	req.PageSize, req.PageToken = pageRows, r.FormValue("page")
	key := answers.KeyFor(ctx, "records "+r.URL.RawQuery)
	list, err := answers.Get(ctx, p.Source, key, func(ctx context.Context) (*admin.ListRecordsResponse, error) {
		return p.Scheduler.ListRecords(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	for _, r := range list.GetRecords() {
		if r.GetBuild() != nil {
			v.Builds = append(v.Builds, *publishedOf(r))
		} else {
			v.List = append(v.List, rowOf(r))
		}
	}
	if list.GetNextPageToken() != "" {
		v.Next = with("page", list.GetNextPageToken())
	}
	return v, nil
}
