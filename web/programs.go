package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/text"
)

// A program is a worker as operators know it: all positions of one process, which are the workers
// of the scheduler.
type program struct {
	*admin.Worker                   // one of them
	Identity      map[string]string // less the position
	ID            string            // tells it from all others of the page, over time
	Positions     []position
	States        []stateCount
}

type position struct {
	*admin.Worker
	Position string // empty: there is one only
}

// Query finds the operations of its action.
func (p position) Query() template.URL {
	return template.URL(url.Values{"pattern": {"stage=executing,action=" + p.GetAction()}}.Encode())
}

type stateCount struct {
	State string
	Count int
}

// programs brings together positions of one process that are next to each other.
func programs(list []*admin.Worker) []program {
	var all []program
	for _, w := range list {
		id := names.WithoutPosition(w.GetIdentity())
		name := text.Pairs(id)
		if len(all) == 0 || all[len(all)-1].ID != name {
			all = append(all, program{Worker: w, Identity: id, ID: name})
		}
		p := &all[len(all)-1]
		p.Positions = append(p.Positions, position{w, w.GetIdentity()[names.PositionKey]})
	}
	for i := range all {
		all[i].States = statesOf(all[i].Positions)
	}
	return all
}

// statesOf counts positions by their state, in the order of the schema.
func statesOf(list []position) []stateCount {
	counts := map[admin.Worker_State]int{}
	for _, p := range list {
		counts[p.GetState()]++
	}
	var states []stateCount
	for _, s := range slices.SortedFunc(maps.Keys(counts), func(a, b admin.Worker_State) int { return cmp.Compare(a, b) }) {
		states = append(states, stateCount{stateText(s), counts[s]})
	}
	return states
}

// CanDrain reports whether some of it takes work unless it is drained.
func (p program) CanDrain() bool {
	return slices.ContainsFunc(p.Positions, func(x position) bool { return !x.GetDrainedByPattern() })
}

// Suspension says why it gets nothing for a while, or one action only; empty: it gets what it asks for.
func (p program) Suspension() string { return text.Suspension(p.Worker) }

// Store is how full its store is; nil: it does not say.
func (p program) Store() *meter {
	r := p.GetReport()
	if r.GetStoreMaxBytes() == 0 {
		return nil
	}
	share := float64(r.GetStoreBytes()) / float64(r.GetStoreMaxBytes())
	m := meterOf(fmt.Sprintf("%s full, %d blobs", percent(share), r.GetStoreBlobs()), share)
	return &m
}

// StoreHits is the share of the files that commands opened which its store had.
func (p program) StoreHits() string {
	r := p.GetReport()
	return rate(r.GetFilesLocal(), r.GetFilesLocal()+r.GetFilesForeseen()+r.GetFilesLate()+r.GetFilesMissed())
}

// Ahead is the share of the others that came before they were asked for.
func (p program) Ahead() string {
	r := p.GetReport()
	return rate(r.GetFilesForeseen(), r.GetFilesForeseen()+r.GetFilesLate()+r.GetFilesMissed())
}

func rate(part, all int64) string {
	if all <= 0 {
		return dash("")
	}
	return percent(min(max(float64(part)/float64(all), 0), 1))
}
