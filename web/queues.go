package web

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/plots"
	"github.com/forerunner-build/forerunner/web/text"
)

// A queuePages serves the queues: the overview, and the branches of each queue.
type queuePages struct {
	*answers.Source
	plots *plots.Plots
	// address, pages and slots are from Options; used is set once the farm has been used.
	address, pages string
	slots          int
	used           atomic.Bool
}

// An overview is the data of the overview.
type overview struct {
	Queues          []*admin.Queue
	Unmatched       int64
	UnmatchedReason string
	Spans           []choice
	Plots           []charts.Plot
	// Start has lines for .bazelrc, and Address is the scheduler's address; both are empty once the
	// farm has been used.
	Start, Address string
	plots.Sample
}

func (p *queuePages) overview(ctx context.Context, r *http.Request) (any, error) {
	span, spans, err := spanOf(r)
	if err != nil {
		return nil, err
	}
	list, err := p.Queues(ctx)
	if err != nil {
		return nil, err
	}
	return overview{
		Queues: list.GetQueues(), Unmatched: list.GetUnmatched(), UnmatchedReason: list.GetUnmatchedReason(),
		Spans: spans, Plots: p.plots.Farm(time.Now(), span), Start: p.start(ctx, r), Address: reachable(p.address, r.Host), Sample: plots.SampleOf(list),
	}, nil
}

// A queueTree is a queue with its branches.
type queueTree struct {
	*admin.Queue
	Branches []branch
	Omitted  int64
}

// A branch is the part of a queue whose operations share one key.
type branch struct {
	*admin.Branch
	// ID identifies the branch on the page over time.
	ID string
	// Share is its share of its siblings' running work. Fair is its fair share among the siblings
	// with running or queued operations.
	Share, Fair float64
	// Open: the page shows its subbranches until the viewer closes them.
	Open     bool
	Branches []branch
}

// Bar returns a bar of the share, with a mark at the fair share.
func (b branch) Bar() charts.Meter {
	return charts.MeterOf(fmt.Sprintf("share %s, fair %s", text.Percent(b.Share), text.Percent(b.Fair)), b.Share, b.Fair)
}

func (p *queuePages) invocations(ctx context.Context, _ *http.Request) (any, error) {
	list, err := p.Queues(ctx)
	if err != nil {
		return nil, err
	}
	trees := make([]queueTree, len(list.GetQueues()))
	for i, q := range list.GetQueues() {
		id := queueID(q)
		trees[i] = queueTree{q, branches(id, q.GetRoot()), q.GetRoot().GetOmitted()}
	}
	return trees, nil
}

func branches(id string, parent *admin.Branch) []branch {
	var running, due float64
	for _, b := range parent.GetChildren() {
		running += float64(b.GetRunning())
		due += b.GetDue()
	}
	list := make([]branch, len(parent.GetChildren()))
	for i, b := range parent.GetChildren() {
		below := id + "/" + b.GetKey()
		list[i] = branch{Branch: b, ID: below, Branches: branches(below, b), Open: len(list) == 1}
		if running > 0 {
			list[i].Share = float64(b.GetRunning()) / running
		}
		if due > 0 {
			list[i].Fair = b.GetDue() / due
		}
	}
	return list
}
