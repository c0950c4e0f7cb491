package operators

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// TestFirst goes through names page by page, in whatever order they come.
func TestFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct{ names, size int }{{0, 3}, {3, 3}, {4, 3}, {100, 1}, {1000, 7}, {5000, 0}} {
		var want, got []string
		for i := range test.names {
			want = append(want, fmt.Sprintf("%05d", i))
		}
		token := ""
		for {
			f := newFirst(token, int32(test.size))
			for _, i := range random.Perm(test.names) {
				f.add(want[i])
			}
			var names []string
			names, token = f.page()
			got = append(got, names...)
			if token == "" {
				break
			}
			if len(names) != cmp.Or(test.size, MaxPage) {
				t.Errorf("%d names on a page of %d", len(names), test.size)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: pages have %q", test, got)
		}
	}
}

// silent has no reports of workers.
type silent struct{}

func (silent) Report(string) *live.Report { return nil }

func (silent) Reports() map[*live.Report]struct{} { return nil }

// TestPatternsThatCannotMatch: a pattern that can never match is an error, because an empty list
// would look as if there were nothing.
func TestPatternsThatCannotMatch(t *testing.T) {
	d := newDesk(t)
	workers := &workers{Engine: d.Engine, reports: silent{}, lost: &Lost{}, keep: func([]drain.Record) error { return nil }}
	list := func(asked *admin.Pattern) error {
		_, err := workers.ListWorkers(t.Context(), &admin.ListWorkersRequest{Pattern: asked})
		return err
	}
	rack := &admin.Pattern{Attributes: map[string]string{"rack": "7"}}
	if err := list(rack); err != nil {
		t.Errorf("while there is no worker: %v", err)
	}
	id := map[string]string{"host": "build-1"}
	d.Feed(&event.Report{Worker: names.WorkerKey("", id), ID: id, Doing: event.Idle})
	for asked, want := range map[string]string{
		"host=build-*": "", "host=other": "", "rack=7": `no worker has "rack"; there are host`,
	} {
		p, err := pattern.Parse(asked)
		if err != nil {
			t.Fatal(err)
		}
		if err := list(&admin.Pattern{Attributes: p.Map()}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("workers %s: %v, want %q", asked, err, want)
		}
	}
	if _, err := workers.Drain(t.Context(), &admin.DrainRequest{Pattern: rack}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("drain: %v", err)
	}
	d.submit("build")
	for asked, want := range map[string]string{
		"stage=queued": "", "stage=exec*": "", "platform.os=x": "", "invocation=none": "",
		"stage=bogus": "there are queued and executing", "stage=Queued,invocation=x": "there are queued and executing",
		"traget=//x": `no operation has "traget"; there are action,`,
	} {
		p, err := pattern.Parse(asked)
		if err != nil {
			t.Fatal(err)
		}
		m := &admin.Pattern{Attributes: p.Map()}
		_, err = d.ListOperations(t.Context(), &admin.ListOperationsRequest{Pattern: m})
		_, killErr := d.KillOperations(t.Context(), &admin.KillOperationsRequest{Pattern: m})
		for _, err := range []error{err, killErr} {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("operations %s: %v, want %q", asked, err, want)
			}
		}
	}
}
