package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A hostileConn answers as a scheduler whose clients have sent what moves cursors.
type hostileConn struct{ grpc.ClientConnInterface }

const hostile = "//a\x1b]52;c;eA==\x07\n//b\tc\u009b2J\u202e"

func (hostileConn) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	switch m := reply.(type) {
	case *admin.ListRecordsResponse:
		proto.Merge(m, &admin.ListRecordsResponse{Records: []*historypb.Record{{Operation: "o", Target: hostile, Arguments: []string{"x", hostile}}}})
	case *admin.ListWorkersResponse:
		proto.Merge(m, &admin.ListWorkersResponse{Workers: []*admin.Worker{{Identity: map[string]string{"host": hostile, hostile: "x"}}}})
	}
	return nil
}

// TestHostileNames: an operator's tables have a line for each thing, and nothing that his terminal obeys, whatever it is called.
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
			list, listErr := c.workers(t.Context(), nil)
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
		if !strings.Contains(got, "//a") || name == "workers" && !strings.Contains(got, "=x") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if m := (&admin.ListRecordsResponse{}); (cleanConn{hostileConn{}}).Invoke(t.Context(), "", nil, m) != nil ||
		m.GetRecords()[0].GetArguments()[0] != "x" || strings.Contains(m.GetRecords()[0].GetArguments()[1], "\n") {
		t.Errorf("%v", m)
	}
	if got := printable("é\n\tx"); got != "é\n\tx" {
		t.Errorf("%q", got)
	}
}
