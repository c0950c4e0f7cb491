package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/comparison"
)

// A hostileConn answers as a scheduler whose clients have sent what moves cursors.
type hostileConn struct{ grpc.ClientConnInterface }

const hostile = "//a\x1b]52;c;eA==\x07\n//b\tc\u009b2J\u202e\x7f\U000e0041"

func (hostileConn) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	switch m := reply.(type) {
	case *admin.ListRecordsResponse:
		proto.Merge(m, &admin.ListRecordsResponse{Records: []*historypb.Record{{Operation: "o", Target: hostile, Arguments: []string{"x", hostile}}}})
	case *admin.ListWorkersResponse:
		switch args.(*admin.ListWorkersRequest).GetPageToken() {
		case "":
			proto.Merge(m, &admin.ListWorkersResponse{
				Workers: []*admin.Worker{{Identity: map[string]string{"host": hostile, hostile: "x"}}}, NextPageToken: hostile,
			})
		case hostile:
			proto.Merge(m, &admin.ListWorkersResponse{Workers: []*admin.Worker{{Identity: map[string]string{"host": "last"}}}})
		}
	}
	return nil
}

// TestHostileNames: whatever the names are, an operator's tables have one line for each row and no
// terminal codes.
func TestHostileNames(t *testing.T) {
	for name, args := range map[string][]string{"history": {"history"}, "as JSON": {"history", "--json"}, "workers": {"workers"}} {
		var out strings.Builder
		call := func(json bool) *adminCall { return newAdminCall(hostileConn{}, &out, json) }
		var err error
		switch args[0] {
		case "history":
			c := call(len(args) > 1)
			list, listErr := c.records(t.Context(), &admin.ListRecordsRequest{}, 1)
			if err = listErr; err == nil {
				printed := false
				if printed, err = c.print(list); !printed {
					err = c.printRecords(list.GetRecords())
				}
			}
		case "workers":
			c := call(false)
			list, listErr := c.workers(t.Context(), &admin.ListWorkersRequest{})
			if err = listErr; err == nil {
				err = c.printWorkers(list)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := out.String()
		if strings.ContainsAny(got, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s: %q", name, got)
		}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "//b") {
				t.Errorf("%s: a name makes a line of its own: %q", name, got)
			}
		}
		if !strings.Contains(got, "//a") || name == "workers" && !(strings.Contains(got, "=x") && strings.Contains(got, "last")) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if m := (&admin.ListRecordsResponse{}); (printableConn{hostileConn{}, false}).Invoke(t.Context(), "", nil, m) != nil ||
		m.GetRecords()[0].GetArguments()[1] != hostile || strings.Contains(m.GetRecords()[0].GetTarget(), "\n") {
		t.Errorf("%v", m)
	}
	if got := printable.Lines("é\n\tx"); got != "é\n\tx" {
		t.Errorf("%q", got)
	}
}

// TestJSONHasEveryText: JSON output has every character of the answer, and no terminal codes.
func TestJSONHasEveryText(t *testing.T) {
	var out strings.Builder
	c := newAdminCall(hostileConn{}, &out, true)
	list, err := c.records(t.Context(), &admin.ListRecordsRequest{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if printed, err := c.print(list); !printed || err != nil {
		t.Fatal(printed, err)
	}
	if got := out.String(); printable.Lines(got) != got {
		t.Errorf("%q", got)
	}
	want, got := &admin.ListRecordsResponse{}, &admin.ListRecordsResponse{}
	if err := errors.Join((hostileConn{}).Invoke(t.Context(), "", nil, want), protojson.Unmarshal([]byte(out.String()), got)); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHostileExplanation: values in an explanation cannot add lines to it.
func TestHostileExplanation(t *testing.T) {
	var out strings.Builder
	c := &adminCall{out: printableWriter{&out}}
	run := func() *historypb.Record { return &historypb.Record{Operation: "o", Target: hostile} }
	if err := c.printExplanation(run(), &comparison.Explanation{
		Reasons: []string{hostile}, Other: run(), Problem: hostile, Kinds: []comparison.Kind{
			{Name: "environment", List: []comparison.Difference{{Name: hostile, Other: hostile, This: hostile}}},
			{Name: "Inputs", List: []comparison.Difference{{Name: hostile, Other: hostile, This: hostile}}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "//b") || strings.Contains(line, "\x1b") {
			t.Errorf("%q", line)
		}
	}
	if n := strings.Count(out.String(), "//b"); n != 10 {
		t.Errorf("%d names are shown, not 10:\n%s", n, out.String())
	}
}

// A workerConn answers with records of a worker, by its key and by its name in a result.
type workerConn struct{ grpc.ClientConnInterface }

func (workerConn) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	proto.Merge(reply.(proto.Message), &admin.ListRecordsResponse{Records: []*historypb.Record{
		{Operation: "operations/1", Worker: `acme/{"host":"a","position":"3"}`}, {Operation: "operations/2", Worker: "host=b,position=1"},
	}})
	return nil
}

// TestWorkersAreNamedAsPatterns: the names of workers in output are valid patterns. Tables omit
// their positions.
func TestWorkersAreNamedAsPatterns(t *testing.T) {
	for asJSON, want := range map[bool][]string{true: {`"worker": "host=a,position=3"`, `"worker": "host=b,position=1"`}, false: {"host=a\n", "host=b\n"}} {
		var out strings.Builder
		c := newAdminCall(workerConn{}, &out, asJSON)
		list, err := c.records(t.Context(), &admin.ListRecordsRequest{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := c.print(list)
		if !printed {
			err = c.printRecords(list.GetRecords())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%q is not in:\n%s", w, out.String())
			}
		}
	}
}
