package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// buildOf returns the record of a build after that many events.
func buildOf(invocation, user string, last int64) *historypb.Record {
	return &historypb.Record{
		Invocation: invocation, User: user, Ended: timestamppb.New(time.UnixMilli(1e12 + last)), Build: &historypb.Build{LastEvent: last},
	}
}

// foundBuilds returns the builds that Find returns over all pages, each as "invocation user event".
func foundBuilds(t *testing.T, s *Store, q Query) (list []string) {
	t.Helper()
	q.Builds = true
	for _, r := range find(t, s, q) {
		list = append(list, strings.TrimSpace(fmt.Sprint(r.GetInvocation(), " ", r.GetUser(), " ", r.GetBuild().GetLastEvent())))
	}
	return list
}

// TestBuilds stores records of builds and of operations. A search for one kind must not return the
// other, and for each build it returns only the last record: in memory, in files and after a
// restart, whatever the page size.
func TestBuilds(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, Options{MaxBytes: 14 << 10}) // small segments
	s.Add(buildOf("one", "ann", 1))
	s.Add(buildOf("one", "eve", 2))
	fill(t, s, 7, 200)
	s.Add(buildOf("one", "ann", 3))
	s.Add(buildOf("two", "ann", 4))
	operations := len(find(t, s, Query{Limit: 1000}))
	check := func() {
		t.Helper()
		for limit := 1; limit < 5; limit++ {
			if got, want := foundBuilds(t, s, Query{Limit: limit}), []string{"two ann 4", "one ann 3", "one eve 2"}; !slices.Equal(got, want) {
				t.Errorf("builds by %d: %q, want %q", limit, got, want)
			}
		}
		list := find(t, s, Query{Limit: 1000})
		if len(list) != operations || slices.ContainsFunc(list, func(r *historypb.Record) bool { return r.GetBuild() != nil }) {
			t.Errorf("%d operations, want %d", len(list), operations)
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder, Options{})
	defer s.Close()
	if len(s.segments) < 2 {
		t.Errorf("all are in %d segment", len(s.segments))
	}
	check()
}

// TestFindBuilds finds builds by the data that the build tool reported.
func TestFindBuilds(t *testing.T) {
	s := open(t, "", Options{})
	all := buildOf("all", "ann", 1)
	all.Mnemonic, all.Outcome, all.Target, all.InstanceName = "test", historypb.Outcome_FAILED, "//...", "team"
	all.Build = &historypb.Build{
		LastEvent: 1, Patterns: []string{"//...", "-//slow/..."}, LocalUser: "annika", Host: "desk",
		Targets: []*historypb.Build_Target{{Label: "//lib:fine"}, {Label: "//lib:broken", State: historypb.Build_FAILED}},
		Tests:   []*historypb.Build_Test{{Label: "//lib:good_test", Status: "PASSED"}, {Label: "//lib:bad_test", Status: "TIMEOUT"}},
	}
	begun := buildOf("later", "", 2)
	begun.Mnemonic, begun.Build.Patterns = "build", []string{"//app"}
	later := buildOf("later", "", 3)
	later.Mnemonic, later.Outcome = "build", historypb.Outcome_SUCCEEDED
	later.Build.Patterns, later.Build.LocalUser, later.Build.Host = []string{"//app"}, "bob", "laptop"
	large := buildOf("large", "carl", 4)
	for range 300 {
		large.Build.Patterns = append(large.Build.Patterns, "//"+strings.Repeat("x", 100))
	}
	for _, r := range []*historypb.Record{all, begun, later, large} {
		s.Add(r)
	}
	where := func(f Field, glob string) Query { return Query{Where: map[Field]string{f: glob}} }
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{}, []string{"large carl 4", "later  3", "all ann 1"}},
		{where(Target, "//..."), []string{"all ann 1"}},
		{where(Target, "-//slow/*"), []string{"all ann 1"}},
		{where(Target, "//lib:broken"), []string{"all ann 1"}},
		{where(Target, "//lib:*_test"), []string{"all ann 1"}},
		{where(Target, "//lib:good_test"), nil},
		{where(Target, "//lib:fine"), nil},
		{where(Target, "lib"), nil},
		{where(Target, "//app"), []string{"later  3"}},
		{where(Mnemonic, "test"), []string{"all ann 1"}},
		{where(User, "ann"), []string{"all ann 1"}},
		{where(User, "annika"), []string{"all ann 1"}},
		{where(User, "bo?"), []string{"later  3"}},
		{where(User, "desk"), nil},
		{where(User, ""), []string{"later  3"}},
		{where(Worker, "desk"), []string{"all ann 1"}},
		{where(Worker, "bob@*"), []string{"later  3"}},
		{where(Worker, "annika"), nil},
		{where(Invocation, "later"), []string{"later  3"}},
		{where(Instance, "team"), []string{"all ann 1"}},
		{Query{Text: "LAPTOP"}, []string{"later  3"}},
		{Query{Text: "lib:bro"}, []string{"all ann 1"}},
		{Query{Outcomes: []historypb.Outcome{historypb.Outcome_OUTCOME_UNSPECIFIED}}, []string{"large carl 4"}}, // not by the outcome of an earlier record
		{Query{Before: time.UnixMilli(1e12 + 3)}, []string{"later  2", "all ann 1"}},
		{Query{Owned: func(user, _ string) bool { return user == "bob" || user == "annika" }}, nil}, // nobody has to trust these names
	} {
		c.q.Limit = 10
		if got := foundBuilds(t, s, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
	if n := len(targetsOf(large.Build)); n > maxFound {
		t.Errorf("a build is found by %d bytes of targets", n)
	}
}
