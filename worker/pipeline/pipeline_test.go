package pipeline

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/runner"
)

func TestPlacesAreGivenBack(t *testing.T) {
	inStage := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "in_stage"}, []string{"stage"})
	registry := prometheus.NewRegistry()
	check(t, registry.Register(inStage))
	p := New(make([]*runner.Launcher, 2), 1, 1, inStage)
	var held []*Permit
	steps := []func(*Permit) error{
		func(*Permit) error { return nil },
		func(l *Permit) error { return l.Execute(t.Context()) },
		func(l *Permit) error { return l.Execute(t.Context()) },
		func(l *Permit) error {
			if err := l.Execute(t.Context()); err != nil {
				return err
			}
			return l.Report(t.Context())
		},
	}
	for i := len(steps) - 1; i >= 0; i-- {
		l := p.TryEnter()
		if l == nil {
			t.Fatalf("no permit is left with %d taken", len(held))
		}
		if !l.occupy() {
			t.Fatal("a permit is none")
		}
		check(t, steps[i](l))
		held = append(held, l)
	}
	if p.TryEnter() != nil {
		t.Fatal("a full pipeline has a permit")
	}
	counted := map[string]float64{}
	families, err := registry.Gather()
	check(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			counted[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if want := map[string]float64{"fetch": 1, "execute": 2, "report": 1}; !maps.Equal(counted, want) {
		t.Errorf("in the stages are %v, want %v", counted, want)
	}
	for _, l := range held {
		l.Leave()
	}
	if len(p.fetch) != 1 || len(p.slots) != 2 || len(p.report) != 1 {
		t.Errorf("free places are %d, %d and %d", len(p.fetch), len(p.slots), len(p.report))
	}
}

// TestActionWhoseSlotWasRecalled gets one although all are kept for actions that may never come.
func TestActionWhoseSlotWasRecalled(t *testing.T) {
	inStage := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "in_stage"}, []string{"stage"})
	p := New(make([]*runner.Launcher, 2), 0, 1, inStage)
	kept := []*Permit{p.TryEnter(), p.TryEnter()}
	rerun := &Permit{p: p, occupied: true}
	check(t, rerun.Again(t.Context()))
	rerun.Leave()
	p.TryEnter() // by another position, which waits for the scheduler
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, l := range kept {
		check(t, l.Begin(ctx))
		if l.slot == nil || !l.occupied {
			t.Errorf("an action has the permit %+v", l)
		}
	}
}

// TestActionWithoutPermit gets one although all are kept for actions that may never come.
func TestActionWithoutPermit(t *testing.T) {
	for _, fetch := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			inStage := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "in_stage"}, []string{"stage"})
			p := New(make([]*runner.Launcher, 1), fetch, 1, inStage)
			kept := p.TryEnter() // by a position that waits for the scheduler
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			l, err := p.Enter(ctx)
			check(t, err)
			check(t, l.Begin(ctx))
			if l.Slot() == nil {
				t.Errorf("%d permits to fetch: the action has %+v", fetch, l)
			}
			l.Leave()
			check(t, kept.Begin(ctx))
			check(t, kept.Execute(ctx))
			kept.Leave()
			if len(p.slots) != 1 || len(p.fetch) != fetch {
				t.Errorf("%d permits to fetch: free are %d, and %d slots", fetch, len(p.fetch), len(p.slots))
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
