package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

const (
	// maxBuilt and maxBuiltBytes bound the actions of a build that its page has.
	maxBuilt, maxBuiltBytes = 50_000, 32 << 20
	// maxNamed is how many targets, failures and mnemonics are listed.
	maxNamed = 20
	// maxLanes bounds the lanes of the time line, laneHeight and laneWidth are of its picture.
	maxLanes              = 200
	laneHeight, laneWidth = 8, 1000
)

// A buildView is an invocation.
type buildView struct {
	Invocation, User string
	// Total have ended, Running and Waiting have not.
	Total, Running, Waiting int
	Outcomes                []tally
	Mnemonics               []mnemonicRow
	Failed, Slowest         []recordRow
	MoreFailed              int
	First, Last             time.Time
	Lanes                   *lanes
	Cut                     bool // there are more than maxBuilt
}

// form is what viewers have to load anew to see all of the page.
func (v *buildView) form() string { return fmt.Sprint(v.Live()) }

// Live reports whether something of it waits or runs.
func (v *buildView) Live() bool { return v.Running+v.Waiting > 0 }

// Took is from the first that was queued to the last that ended.
func (v *buildView) Took() time.Duration { return v.Last.Sub(v.First) }

type tally struct {
	Name, Class string
	Count       int
	Href        string
}

// A mnemonicRow is what became of the actions of one mnemonic.
type mnemonicRow struct {
	Name                  string
	Count, Cached, Failed int
	Ran                   time.Duration // all together
}

// Hits is the share that was in the action cache.
func (m mnemonicRow) Hits() meter {
	share := float64(m.Cached) / float64(m.Count)
	return meterOf(percent(share)+" from the action cache", share)
}

func (s *Site) build(ctx context.Context, r *http.Request) (any, error) {
	id := r.PathValue("invocation")
	p := &admin.Pattern{Attributes: map[string]string{"invocation": strings.NewReplacer("*", "?", "?", "?").Replace(id)}}
	v := &buildView{Invocation: id}
	records, err := s.built(ctx, p, v)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	key := keyFor(ctx, "build "+id)
	open, err := ask(ctx, s.source, key, func(ctx context.Context) (*admin.ListOperationsResponse, error) {
		return s.options.Scheduler.ListOperations(ctx, &admin.ListOperationsRequest{Pattern: p})
	})
	if err != nil {
		return nil, err
	}
	for _, op := range open.GetOperations() {
		if op.GetInvocation() != id {
			continue
		}
		if op.GetWorker() == "" {
			v.Waiting++
			continue
		}
		v.Running++
		v.Last = now
		records = append(records, &historypb.Record{
			Operation: op.GetName(), Target: op.GetTarget(), Mnemonic: op.GetMnemonic(), Worker: op.GetWorker(),
			Queued: op.GetQueued(), Started: op.GetStarted(),
		})
	}
	if len(records)+v.Waiting == 0 {
		return nil, status.Errorf(codes.NotFound, "invocation %q is unknown, or ended too long ago", id)
	}
	v.Lanes = lanesOf(records, now)
	return v, nil
}

// built returns the records of an invocation and counts them.
func (s *Site) built(ctx context.Context, p *admin.Pattern, v *buildView) (all []*historypb.Record, err error) {
	bytes := 0
	for token := ""; len(all) < maxBuilt && bytes < maxBuiltBytes; {
		list, err := s.options.Scheduler.ListRecords(ctx, &admin.ListRecordsRequest{Pattern: p, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, r := range list.GetRecords() {
			if r.GetInvocation() == v.Invocation {
				all = append(all, r)
				bytes += lighten(r)
			}
		}
		if token = list.GetNextPageToken(); token == "" {
			break
		}
		v.Cut = len(all) >= maxBuilt || bytes >= maxBuiltBytes
	}
	v.count(all)
	return all, nil
}

// lighten takes out of a record what the page of its build does not show, and returns its size then.
func lighten(r *historypb.Record) int {
	r.Arguments, r.Outputs, r.Stdout, r.Stderr, r.Correlated, r.Configuration = nil, nil, nil, nil, "", ""
	if r.GetMetadata() != nil {
		r.Metadata.AuxiliaryMetadata = nil
	}
	return proto.Size(r)
}

func (v *buildView) count(all []*historypb.Record) {
	outcomes, mnemonics := map[historypb.Outcome]int{}, map[string]*mnemonicRow{}
	v.Total = len(all)
	var rows []recordRow
	for _, r := range all {
		row := rowOf(r)
		v.User = cmp.Or(v.User, r.GetUser())
		if queued := r.GetQueued().AsTime(); v.First.IsZero() || queued.Before(v.First) {
			v.First = queued
		}
		v.Last = later(v.Last, row.Ended)
		outcomes[r.GetOutcome()]++
		m := mnemonics[r.GetMnemonic()]
		if m == nil {
			m = &mnemonicRow{Name: r.GetMnemonic()}
			mnemonics[r.GetMnemonic()] = m
		}
		m.Count++
		m.Ran += row.Took
		if r.GetOutcome() == historypb.Outcome_CACHED {
			m.Cached++
		}
		if row.Class() == "failed" {
			m.Failed++
			if len(v.Failed) < maxNamed {
				v.Failed = append(v.Failed, row)
			} else {
				v.MoreFailed++
			}
		}
		rows = append(rows, row)
	}
	for o := range historypb.Outcome_name {
		if n := outcomes[historypb.Outcome(o)]; n > 0 {
			v.Outcomes = append(v.Outcomes, tally{Name: outcomeName(historypb.Outcome(o)), Class: outcomeClass(historypb.Outcome(o)), Count: n})
		}
	}
	slices.SortFunc(v.Outcomes, func(a, b tally) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	for _, m := range mnemonics {
		v.Mnemonics = append(v.Mnemonics, *m)
	}
	slices.SortFunc(v.Mnemonics, func(a, b mnemonicRow) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	v.Mnemonics = v.Mnemonics[:min(len(v.Mnemonics), maxNamed)]
	slices.SortStableFunc(rows, func(a, b recordRow) int { return cmp.Compare(b.Took, a.Took) })
	for _, row := range rows[:min(len(rows), maxNamed)] {
		if row.Took > 0 {
			v.Slowest = append(v.Slowest, row)
		}
	}
}

// A lanes is the time line of a build: a lane for each position of a worker, with its actions one after another.
type lanes struct {
	Lanes []lane
	// More lanes are not drawn.
	More, Height int
	Took         time.Duration
	// Paths are all bars of each stage as one path, whatever the number of actions.
	Paths []lanePath
	// Data has the actions for the script that names the one under the pointer.
	Data string
}

// A lane is a position of a worker.
type lane struct {
	Name string
	Y    int
}

type lanePath struct {
	Class, Name string
	D           template.HTMLAttr
	d           strings.Builder
}

// parts are the stages that the time line tells apart, from and until when.
func parts(r *historypb.Record, now time.Time) [4]time.Time {
	m := r.GetMetadata()
	end := now
	if r.GetEnded() != nil {
		end = r.GetEnded().AsTime()
	}
	p := [4]time.Time{r.GetStarted().AsTime(), r.GetStarted().AsTime(), end, end}
	if at := m.GetExecutionStartTimestamp(); at != nil {
		p[1] = at.AsTime()
	}
	if at := m.GetExecutionCompletedTimestamp(); at != nil {
		p[2] = at.AsTime()
	}
	for i := 1; i < len(p); i++ {
		p[i] = later(p[i], p[i-1])
	}
	return p
}

// lanesOf draws what ran. Nil: nothing did.
func lanesOf(records []*historypb.Record, now time.Time) *lanes {
	ran := slices.DeleteFunc(slices.Clone(records), func(r *historypb.Record) bool { return r.GetStarted() == nil || r.GetWorker() == "" })
	if len(ran) == 0 {
		return nil
	}
	slices.SortFunc(ran, func(a, b *historypb.Record) int {
		return cmp.Or(a.GetStarted().AsTime().Compare(b.GetStarted().AsTime()), cmp.Compare(a.GetOperation(), b.GetOperation()))
	})
	first, last := ran[0].GetStarted().AsTime(), time.Time{}
	byWorker := map[string]int{}
	var names []string
	for _, r := range ran {
		last = later(last, parts(r, now)[3])
		if _, known := byWorker[r.GetWorker()]; !known {
			byWorker[r.GetWorker()] = 0
			names = append(names, r.GetWorker())
		}
	}
	slices.Sort(names)
	l := &lanes{Took: max(last.Sub(first), 1), More: max(len(names)-maxLanes, 0)}
	names = names[:min(len(names), maxLanes)]
	clear(byWorker)
	for i, name := range names {
		byWorker[name] = i
		l.Lanes = append(l.Lanes, lane{workerText(name), i * (laneHeight + 1)})
	}
	l.Height = len(names) * (laneHeight + 1)
	l.draw(ran, byWorker, first, now)
	return l
}

// A bar is an action for the script: lane, from and until in thousandths, its operation and what it is called.
type bar [5]any

func (l *lanes) draw(ran []*historypb.Record, byWorker map[string]int, first, now time.Time) {
	paths := []*lanePath{{Class: "fetch", Name: "inputs and waiting on the worker"}, {Class: "run", Name: "execution"}, {Class: "bad", Name: "execution that failed"}, {Class: "upload", Name: "outputs and report"}}
	at := func(t time.Time) float64 { return laneWidth * float64(t.Sub(first)) / float64(l.Took) }
	var bars []bar
	for _, r := range ran {
		row, drawn := byWorker[r.GetWorker()]
		if !drawn {
			continue
		}
		p := parts(r, now)
		y := row * (laneHeight + 1)
		run := paths[1]
		if r.GetEnded() != nil && outcomeClass(r.GetOutcome()) == "failed" {
			run = paths[2]
		}
		for i, path := range []*lanePath{paths[0], run, paths[3]} {
			if from, to := at(p[i]), at(p[i+1]); to-from > 0.02 || path == run {
				fmt.Fprintf(&path.d, "M%.2f %dh%.2fv%dh-%.2[3]fz", from, y, max(to-from, 0.3), laneHeight)
			}
		}
		name := cmp.Or(r.GetTarget(), operationID(r.GetOperation()))
		bars = append(bars, bar{row, int(at(p[0]) * 100), int(at(p[3]) * 100), operationID(r.GetOperation()), name + " " + r.GetMnemonic() + " " + durationText(p[3].Sub(p[0]))})
	}
	for _, path := range paths {
		if path.d.Len() > 0 {
			l.Paths = append(l.Paths, lanePath{Class: path.Class, Name: path.Name, D: template.HTMLAttr(`d="` + path.d.String() + `"`)})
		}
	}
	if data, err := json.Marshal(bars); err == nil {
		l.Data = string(data)
	}
}
