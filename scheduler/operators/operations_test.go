package operators

import (
	"fmt"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// A desk serves operators' requests for operations, of which some have ended.
type desk struct {
	*testing.T
	operations
	made int
}

func newDesk(t *testing.T) *desk {
	state, err := core.NewState(tuning.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{T: t, operations: newOperations(engine.New(state, nil))}
}

// submit has an invocation ask for something, under a name that says nothing of when.
func (d *desk) submit(invocation string) string {
	d.made++
	sum := digest.Of(digest.SHA256, fmt.Append(nil, d.made))
	name := "operations/" + sum.String()[:20]
	if err := d.Feed(event.Submit{Operation: &request.Operation{
		Name: name, Digest: sum, Action: &repb.Action{}, Request: request.Metadata{ToolInvocation: invocation},
	}}).Err; err != nil {
		d.Fatal(err)
	}
	return name
}

// list returns the names on all pages of that size.
func (d *desk) list(size int32, attributes map[string]string) (names []string) {
	d.Helper()
	req := &admin.ListOperationsRequest{PageSize: size}
	if attributes != nil {
		req.Pattern = &admin.Pattern{Attributes: attributes}
	}
	for {
		list, err := d.ListOperations(d.Context(), req)
		if err != nil {
			d.Fatal(err)
		}
		for _, op := range list.GetOperations() {
			names = append(names, op.GetName())
		}
		if n := len(list.GetOperations()); n > int(size) || n == 0 && req.GetPageToken() != "" {
			d.Fatalf("a page of %d has %d", size, n)
		}
		if req.PageToken = list.GetNextPageToken(); req.PageToken == "" {
			return names
		}
	}
}

// TestListOperations lists all operations in the order of their arrival, by invocation and by name,
// in pages, after some have ended.
func TestListOperations(t *testing.T) {
	d := newDesk(t)
	of := map[string][]string{}
	var all []string
	for i := range 700 {
		invocation := fmt.Sprint("build", i%3)
		name := d.submit(invocation)
		if i%5 == 4 {
			d.Feed(core.Kill{Names: []string{name}, Reason: "test"})
			continue
		}
		all, of[invocation] = append(all, name), append(of[invocation], name)
	}
	for _, size := range []int32{1, 7, 560, 1000} {
		if got := d.list(size, nil); !slices.Equal(got, all) {
			t.Errorf("in pages of %d there are %d operations, not %d in order", size, len(got), len(all))
		}
	}
	for invocation, want := range of {
		if got := d.list(50, map[string]string{"invocation": invocation}); !slices.Equal(got, want) {
			t.Errorf("%s has %d operations, not %d in order", invocation, len(got), len(want))
		}
		got := d.list(3, map[string]string{"invocation": invocation, "operation": want[4]})
		if !slices.Equal(got, want[4:5]) {
			t.Errorf("%s, %s: %q", invocation, want[4], got)
		}
	}
	if got := d.list(9, map[string]string{"invocation": "build1", "operation": of["build2"][0]}); got != nil {
		t.Errorf("of another invocation: %q", got)
	}
	if got := d.list(300, map[string]string{"invocation": "build?"}); !slices.Equal(got, all) {
		t.Errorf("%d operations of build?", len(got))
	}
}

// TestPageTokenOfAnother has tokens that are of no use here be errors: else pages would begin
// anywhere.
func TestPageTokenOfAnother(t *testing.T) {
	d, other := newDesk(t), newDesk(t)
	other.began = "before"
	for _, token := range []string{"x", ".", "operations/1", other.token(0), d.token(0) + "!", d.began} {
		_, err := d.ListOperations(t.Context(), &admin.ListOperationsRequest{PageToken: token})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", token, err)
		}
	}
	if _, err := d.ListOperations(t.Context(), &admin.ListOperationsRequest{PageToken: d.token(7)}); err != nil {
		t.Error(err)
	}
}
