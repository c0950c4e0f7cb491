package engine

import (
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// TestEachOperation lists more operations than are looked at without a break, while in each break
// some end and others come. All that were there from the first to the last are listed once.
func TestEachOperation(t *testing.T) {
	const stay, leave = 2 * lookBatch, lookBatch
	state, err := core.NewState(tuning.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := New(state, nil)
	submit := func(kind string, i int) {
		name := fmt.Sprintf("operations/%s-%05d", kind, i)
		if err := e.Feed(event.Submit{Operation: &request.Operation{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
			Request: request.Metadata{Target: kind},
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
	p, err := pattern.Parse("target=*")
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	e.EachOperation(&p, 0, func(number uint64, op *request.Operation) bool {
		if number <= last {
			t.Errorf("%s is number %d, after %d", op.Name, number, last)
		}
		last = number
		seen[op.Name]++
		if gone < leave && len(seen)%2 == 0 {
			e.Feed(core.Kill{Names: []string{fmt.Sprintf("operations/go-%05d", gone)}, Reason: "test"})
			gone++
		}
		if come < leave {
			submit("come", come)
			come++
		}
		return true
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
	for _, of := range []string{"target=other", "invocation=other", "operation=other"} {
		none, err := pattern.Parse(of)
		if err != nil {
			t.Fatal(err)
		}
		e.EachOperation(&none, 0, func(_ uint64, op *request.Operation) bool {
			t.Errorf("%s is listed", op.Name)
			return true
		})
	}
}
