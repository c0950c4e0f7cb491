package farm

import (
	"context"
	"testing"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestOperationsOfOthers has a user who may execute only for one instance name ask for an operation
// of another one, whose name he knows. To him it must not exist.
func TestOperationsOfOthers(t *testing.T) {
	f := newGuardedFarm(t, accessConfig)
	conns := map[string]*grpc.ClientConn{}
	for _, who := range []string{"user", "team"} {
		conns[who] = f.dial(who)
	}
	name := queued(t, conns["user"], "main")
	for _, ask := range []struct {
		who  string
		want codes.Code
	}{{"team", codes.NotFound}, {"user", codes.OK}} {
		for what, err := range asked(t, conns[ask.who], name) {
			if status.Code(err) != ask.want {
				t.Errorf("%s by %s: %v, want %v", what, ask.who, err, ask.want)
			}
		}
	}
}

// asked makes all calls that name an operation. To cancel it comes last.
func asked(t *testing.T, conn *grpc.ClientConn, name string) map[string]error {
	t.Helper()
	got := map[string]error{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	operations := longrunningpb.NewOperationsClient(conn)
	_, got["get"] = operations.GetOperation(ctx, &longrunningpb.GetOperationRequest{Name: name})
	wait, err := repb.NewExecutionClient(conn).WaitExecution(ctx, &repb.WaitExecutionRequest{Name: name})
	if err == nil {
		_, err = wait.Recv()
	}
	got["wait"] = err
	_, got["cancel"] = operations.CancelOperation(ctx, &longrunningpb.CancelOperationRequest{Name: name})
	if status.Code(got["cancel"]) == codes.NotFound { // else what it prints ends with it
		read, err := bytestream.NewByteStreamClient(conn).Read(ctx, &bytestream.ReadRequest{ResourceName: "streams/" + name + "/stdout"})
		if err == nil {
			_, err = read.Recv()
		}
		got["read"] = err
	}
	return got
}

// queued has an action of an instance name wait for a worker that there is not, and returns its
// operation.
func queued(t *testing.T, conn *grpc.ClientConn, instance string) string {
	t.Helper()
	blob := func(m proto.Message) (*repb.Digest, *repb.BatchUpdateBlobsRequest_Request) {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		d := digest.Of(digest.SHA256, b).Proto()
		return d, &repb.BatchUpdateBlobsRequest_Request{Digest: d, Data: b}
	}
	root, rootBlob := blob(&repb.Directory{})
	command, commandBlob := blob(&repb.Command{Arguments: []string{"true"}})
	action, actionBlob := blob(&repb.Action{CommandDigest: command, InputRootDigest: root})
	if _, err := repb.NewContentAddressableStorageClient(conn).BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		InstanceName: instance, Requests: []*repb.BatchUpdateBlobsRequest_Request{rootBlob, commandBlob, actionBlob},
	}); err != nil {
		t.Fatal(err)
	}
	stream, err := repb.NewExecutionClient(conn).Execute(t.Context(), &repb.ExecuteRequest{InstanceName: instance, ActionDigest: action})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return first.GetName()
}
