package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// TestEachOperation lists more operations than are looked at without a break, while in each break some
// end and others come. All that were there from the first to the last are listed once.
func TestEachOperation(t *testing.T) {
	const stay, leave = 2 * lookBatch, lookBatch
	s, err := NewServer(ServerOptions{Storage: func(string, digest.Function) Storage { return newFakeStorage() }})
	if err != nil {
		t.Fatal(err)
	}
	submit := func(kind string, i int) {
		name := fmt.Sprintf("operations/%s-%05d", kind, i)
		if err := s.engine.feed(core.Submit{Operation: &core.Operation{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
			Request: core.Metadata{Target: kind},
		}}).Err; err != nil {
			t.Error(err)
		}
	}
	for i := range stay {
		submit("stay", i)
	}
	for i := range leave {
		submit("go", i)
	}
	seen, gone, come := map[string]int{}, 0, 0
	p := must(pattern.Parse("target=*"))
	s.admin.eachOperation(&p, func(op *core.Operation) {
		seen[op.Name]++
		if gone < leave && len(seen)%2 == 0 {
			s.engine.feed(core.Kill{Names: []string{fmt.Sprintf("operations/go-%05d", gone)}, Reason: "test"})
			gone++
		}
		if come < leave {
			submit("come", come)
			come++
		}
	})
	if gone == 0 || come == 0 {
		t.Fatal("nothing happened meanwhile")
	}
	for i := range stay {
		if name := fmt.Sprintf("operations/stay-%05d", i); seen[name] != 1 {
			t.Errorf("%s is listed %d times", name, seen[name])
		}
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	none := must(pattern.Parse("target=other"))
	s.admin.eachOperation(&none, func(op *core.Operation) { t.Errorf("%s is listed", op.Name) })
}

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
			if len(names) != cmp.Or(test.size, maxPage) {
				t.Errorf("%d names on a page of %d", len(names), test.size)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: pages have %q", test, got)
		}
	}
}
