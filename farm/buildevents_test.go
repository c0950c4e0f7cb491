package farm

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/bazel"
	"github.com/forerunner-build/forerunner/proto/publish"
)

// published publishes a build for a project, of whose command the patterns are told, and returns
// the error of the call.
func published(t *testing.T, conn *grpc.ClientConn, invocation, project string, options ...string) error {
	t.Helper()
	stream, err := publish.NewPublishBuildEventClient(conn).PublishBuildToolEventStream(t.Context())
	if err != nil {
		return err
	}
	for i, e := range []*bazel.BuildEvent{
		{Payload: &bazel.BuildEvent_Started{Started: &bazel.BuildStarted{Command: "test", StartTimeMillis: time.Now().UnixMilli()}}},
		{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{CmdLine: options}}},
	} {
		event, err := anypb.New(e)
		if err != nil {
			t.Fatal(err)
		}
		// Recv returns the error of the call.
		_ = stream.Send(&publish.PublishBuildToolEventStreamRequest{ProjectId: project, OrderedBuildEvent: &publish.OrderedBuildEvent{
			StreamId: &publish.StreamId{InvocationId: invocation}, SequenceNumber: int64(i + 1),
			Event: &publish.BuildEvent{Event: &publish.BuildEvent_BazelEvent{BazelEvent: event}},
		}})
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); status.Code(err) != codes.Unknown { // EOF
		return err
	}
	return nil
}

// buildsOf returns the instance names of the builds of an invocation that a caller sees.
func buildsOf(t *testing.T, conn *grpc.ClientConn, invocation string) (instances []string) {
	t.Helper()
	list, err := admin.NewSchedulerClient(conn).ListRecords(t.Context(), &admin.ListRecordsRequest{
		Builds: true, Pattern: &admin.Pattern{Attributes: map[string]string{"invocation": invocation}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.GetRecords() {
		instances = append(instances, r.GetUser()+":"+r.GetInstanceName())
	}
	return instances
}

// TestBuildEventsOfOthers has several users publish builds of one invocation. None may change
// another's. A user who may not execute for an instance name may neither publish for it nor see its
// builds. Each must see his own.
func TestBuildEventsOfOthers(t *testing.T) {
	f := newGuardedFarm(t, accessConfig)
	user, team := f.dial("user"), f.dial("team")
	for who, want := range map[string]codes.Code{"nobody": codes.Unauthenticated, "worker": codes.OK} {
		if err := published(t, f.dial(who), "theirs", ""); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", who, err, want)
		}
	}
	for _, build := range []struct {
		conn                *grpc.ClientConn
		invocation, project string
		options             []string
	}{
		{user, "one", "main", nil},
		{team, "one", "team", nil},
		{team, "claimed", "main", nil},
		{user, "unnamed", "", nil},
		{team, "unnamed", "", nil},
		{team, "by option", "", []string{"--remote_instance_name=team"}},
	} {
		if err := published(t, build.conn, build.invocation, build.project, build.options...); err != nil {
			t.Errorf("%s: %v", build.invocation, err)
		}
	}
	for invocation, want := range map[string][2]int{"one": {2, 1}, "claimed": {1, 1}, "unnamed": {2, 1}, "by option": {1, 1}} {
		if all, own := buildsOf(t, user, invocation), buildsOf(t, team, invocation); len(all) != want[0] || len(own) != want[1] {
			t.Errorf("%s: an observer sees %q, the team %q", invocation, all, own)
		}
	}
	if got := buildsOf(t, user, "claimed"); got[0] != "team:" {
		t.Errorf("a build for an instance name of others is %q", got)
	}
}
