package farm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// ended has an action of an instance name end by its client's wish, and returns its record, once
// there is one.
func ended(t *testing.T, conn *grpc.ClientConn, instance string) *historypb.Record {
	t.Helper()
	name := queued(t, conn, instance)
	if _, err := longrunningpb.NewOperationsClient(conn).CancelOperation(t.Context(), &longrunningpb.CancelOperationRequest{Name: name}); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := recordOf(t, conn, name)
		if status.Code(err) == codes.NotFound {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func recordOf(t *testing.T, conn *grpc.ClientConn, operation string) (*historypb.Record, error) {
	t.Helper()
	return admin.NewSchedulerClient(conn).GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: operation}})
}

// TestRecordsOfOthers has a user who may execute only for one instance name ask for completed
// operations of another.
func TestRecordsOfOthers(t *testing.T) {
	f := newGuardedFarm(t, accessConfig)
	conns := map[string]*grpc.ClientConn{}
	for _, who := range []string{"user", "team"} {
		conns[who] = f.dial(who)
	}
	r := ended(t, conns["user"], "main")
	if _, err := recordOf(t, conns["team"], r.GetOperation()); status.Code(err) != codes.NotFound {
		t.Errorf("a stranger by name: %v", err)
	}
	service := admin.NewSchedulerClient(conns["team"])
	if _, err := service.GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Action{Action: r.GetAction()}}); status.Code(err) != codes.NotFound {
		t.Errorf("a stranger by action: %v", err)
	}
	for who, want := range map[string]int{"team": 0, "user": 1} {
		list, err := admin.NewSchedulerClient(conns[who]).ListRecords(t.Context(), &admin.ListRecordsRequest{})
		if err != nil || len(list.GetRecords()) != want {
			t.Errorf("%s sees %d records: %v", who, len(list.GetRecords()), err)
		}
	}
}

// served runs a scheduler on a folder while do uses it.
func served(t *testing.T, data string, do func(*grpc.ClientConn)) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := &Scheduler{Listen: "127.0.0.1:0", Data: data}
	s.Settings()
	s.Data, s.HTTP, s.Storage.CacheSize, s.Kept.Keep = data, "", "100M", 336*time.Hour
	return s.Run(ctx, t.Context(), func(address string) error {
		defer stop()
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		do(conn)
		return nil
	})
}

// TestRecordsOverRestarts finds operations from before a restart by name and by action. Data of
// another version must end the start.
func TestRecordsOverRestarts(t *testing.T) {
	data := t.TempDir()
	var before *historypb.Record
	if err := served(t, data, func(conn *grpc.ClientConn) { before = ended(t, conn, "main") }); err != nil {
		t.Fatal(err)
	}
	if err := served(t, data, func(conn *grpc.ClientConn) {
		r, err := recordOf(t, conn, before.GetOperation())
		if err != nil || r.GetOutcome() != historypb.Outcome_CANCELLED || r.GetInstanceName() != "main" || strings.Join(r.GetArguments(), " ") != "true" {
			t.Errorf("by name: %v, %v", r, err)
		}
		r, err = admin.NewSchedulerClient(conn).GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Action{Action: before.GetAction()}})
		if err != nil || r.GetOperation() != before.GetOperation() {
			t.Errorf("by action: %v, %v", r, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(data, durableFolder, historyFolder, "00000009.records")
	if err := os.WriteFile(file, []byte("forerunner history 99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := served(t, data, func(*grpc.ClientConn) { t.Error("it serves") }); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
		t.Errorf("what another version wrote: %v", err)
	}
}
