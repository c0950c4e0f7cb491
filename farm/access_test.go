package farm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/completed"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// everyRPC says who may call each method of our programs: nobody (any caller), user, results (has
// the right write_results), team (may only execute, for one instance name, but calls without one),
// worker, admin.
var everyRPC = map[string]string{
	"build.bazel.remote.execution.v2.Execution/Execute":                          "user results worker admin",
	"build.bazel.remote.execution.v2.Execution/WaitExecution":                    "user results team worker admin",
	"build.bazel.remote.execution.v2.Capabilities/GetCapabilities":               "user results team worker admin",
	"google.longrunning.Operations/GetOperation":                                 "user results team worker admin",
	"google.longrunning.Operations/CancelOperation":                              "user results team worker admin",
	"google.longrunning.Operations/WaitOperation":                                "user results team worker admin",
	"google.longrunning.Operations/DeleteOperation":                              "user results team worker admin",
	"google.longrunning.Operations/ListOperations":                               "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs": "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs":   "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs": "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree":          "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/SplitBlob":        "user results worker admin",
	"build.bazel.remote.execution.v2.ContentAddressableStorage/SpliceBlob":       "user results worker admin",
	"build.bazel.remote.execution.v2.ActionCache/GetActionResult":                "user results worker admin",
	"build.bazel.remote.execution.v2.ActionCache/UpdateActionResult":             "results worker",
	"google.bytestream.ByteStream/Read":                                          "user results worker admin",
	"google.bytestream.ByteStream/Write":                                         "user results worker admin",
	"google.bytestream.ByteStream/QueryWriteStatus":                              "user results worker admin",
	"buildbarn.remoteworker.OperationQueue/Synchronize":                          "worker",
	"forerunner.live.Outputs/Serve":                                              "worker",
	"forerunner.live.Outputs/Push":                                               "worker",
	"forerunner.live.Outputs/Tell":                                               "worker",
	"buildbarn.fsac.FileSystemAccessCache/GetFileSystemAccessProfile":            "user results worker admin",
	"buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile":         "worker",
	"buildbarn.iscc.InitialSizeClassCache/GetPreviousExecutionStats":             "user results worker admin",
	"buildbarn.iscc.InitialSizeClassCache/UpdatePreviousExecutionStats":          "worker",
	"forerunner.reuse.Accounts/Find":                                             "worker",
	"forerunner.reuse.Accounts/Keep":                                             "worker",
	"forerunner.admin.Scheduler/ListWorkers":                                     "user results worker admin",
	"forerunner.admin.Scheduler/ListQueues":                                      "user results worker admin",
	"forerunner.admin.Scheduler/ListOperations":                                  "user results team worker admin",
	"forerunner.admin.Scheduler/GetOperation":                                    "user results team worker admin",
	"forerunner.admin.Scheduler/ListRecords":                                     "user results team worker admin",
	"forerunner.admin.Scheduler/GetRecord":                                       "user results team worker admin",
	"forerunner.admin.Scheduler/GetSizes":                                        "user results worker admin",
	"forerunner.admin.Scheduler/Drain":                                           "admin",
	"forerunner.admin.Scheduler/Undrain":                                         "admin",
	"forerunner.admin.Scheduler/KillOperations":                                  "admin",
	"forerunner.admin.Scheduler/ListQuotas":                                      "user results worker admin",
	"forerunner.admin.Scheduler/ListStores":                                      "user results worker admin",
	"forerunner.admin.Scheduler/PutQuota":                                        "admin",
	"forerunner.admin.Scheduler/DeleteQuota":                                     "admin",
	"google.devtools.build.v1.PublishBuildEvent/PublishLifecycleEvent":           "user results team worker admin",
	"google.devtools.build.v1.PublishBuildEvent/PublishBuildToolEventStream":     "user results team worker admin",
	"grpc.channelz.v1.Channelz/GetTopChannels":                                   "admin",
	"grpc.channelz.v1.Channelz/GetServers":                                       "admin",
	"grpc.channelz.v1.Channelz/GetServer":                                        "admin",
	"grpc.channelz.v1.Channelz/GetServerSockets":                                 "admin",
	"grpc.channelz.v1.Channelz/GetChannel":                                       "admin",
	"grpc.channelz.v1.Channelz/GetSubchannel":                                    "admin",
	"grpc.channelz.v1.Channelz/GetSocket":                                        "admin",
	"grpc.health.v1.Health/Check":                                                "nobody user results team worker admin",
	"grpc.health.v1.Health/List":                                                 "nobody user results team worker admin",
	"grpc.health.v1.Health/Watch":                                                "nobody user results team worker admin",
	"grpc.reflection.v1.ServerReflection/ServerReflectionInfo":                   "user results team worker admin",
	"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo":              "user results team worker admin",
}

const accessConfig = `
access:
  - {users: [user, results, worker, admin], may: [execute, read, write, observe]}
  - {users: [results], may: [write_results]}
  - {users: [team], instances: [team], may: [execute]}
  - {groups: [forerunner-workers], may: [work]}
  - {users: [adm*], claims: {cert.ou: forerunner-admins}, may: [administer]}
`

// A guardedFarm is a scheduler with storage and known callers.
type guardedFarm struct {
	*testing.T
	address, pages string
	callers        map[string]*dial.Client
}

// A method is one that is served.
type method = protoreflect.MethodDescriptor

func newGuardedFarm(t *testing.T, config string) *guardedFarm {
	t.Helper()
	f := guard(t, &Scheduler{Kept: completed.Settings{Keep: time.Hour}}, config)
	f.checkPages(f.pages)
	return f
}

// guard starts s, with a configuration unless that is empty, where callers have certificates.
func guard(t *testing.T, s *Scheduler, config string) *guardedFarm {
	t.Helper()
	a := certtest.New(t)
	cert, key := a.Server("server")
	s.Ports, s.HTTP = serve.Ports{Cert: cert, Key: key, ClientCA: a.File}, freeport.Address(t)
	if config != "" {
		s.ConfigFile = writeConfig(t, config)
	}
	f := &guardedFarm{T: t, pages: s.HTTP, callers: map[string]*dial.Client{"nobody": {CA: a.File}}}
	for name, units := range map[string][]string{
		"user": nil, "results": nil, "team": nil, "worker": {auth.WorkersGroup}, "admin": {auth.AdminsGroup},
	} {
		cert, key := a.Client(name, units...)
		f.callers[name] = &dial.Client{CA: a.File, Cert: cert, Key: key}
	}
	f.address = startScheduler(t, s)
	return f
}

// checkPages requests the paths that are served over HTTP.
func (f *guardedFarm) checkPages(address string) {
	f.Helper()
	for _, test := range []struct {
		caller, method, page string
		want                 int
	}{
		{"nobody", "GET", "/healthz", http.StatusOK},
		{"nobody", "GET", "/metrics", http.StatusUnauthorized},
		{"user", "GET", "/metrics", http.StatusOK},
		{"nobody", "GET", "/", http.StatusUnauthorized},
		{"user", "GET", "/", http.StatusOK},
		{"user", "POST", "/workers/drain", http.StatusForbidden},
		{"user", "GET", "/debug/pprof/", http.StatusForbidden},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(f.callers[test.caller])}}
		req, err := http.NewRequestWithContext(f.Context(), test.method, "https://"+address+test.page, nil)
		if err != nil {
			f.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			f.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != test.want {
			f.Errorf("%s %s by %s: %s, %s, %v", test.method, test.page, test.caller, resp.Status, text, err)
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
}

func (f *guardedFarm) tls(c *dial.Client) *tls.Config {
	f.Helper()
	authorities, err := os.ReadFile(c.CA)
	if err != nil {
		f.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authorities)
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			f.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (f *guardedFarm) dial(caller string) *grpc.ClientConn {
	f.Helper()
	conn, err := f.callers[caller].Dial(f.address)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	return conn
}

// methods asks the server what it serves.
func (f *guardedFarm) methods() (list []protoreflect.MethodDescriptor) {
	f.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(f.dial("user")).ServerReflectionInfo(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}); err != nil {
		f.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		f.Fatal(err)
	}
	for _, service := range answer.GetListServicesResponse().GetService() {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		if err != nil {
			f.Fatal(err)
		}
		all := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range all.Len() {
			list = append(list, all.Get(i))
		}
	}
	return list
}

// call makes a call with an empty message and returns how it ends, or begins.
func (f *guardedFarm) call(conn *grpc.ClientConn, m protoreflect.MethodDescriptor, req proto.Message) error {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	resp := dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return conn.Invoke(ctx, name, req, resp)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil && err != io.EOF {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(resp); err != io.EOF {
		return err
	}
	return nil
}

func isRefusal(err error) bool {
	return status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated
}

func TestEveryRPC(t *testing.T) {
	f := newGuardedFarm(t, accessConfig)
	left := maps.Clone(everyRPC)
	conns := map[string]*grpc.ClientConn{}
	for caller := range f.callers {
		conns[caller] = f.dial(caller)
	}
	for _, m := range f.methods() {
		name := string(m.Parent().FullName()) + "/" + string(m.Name())
		may, known := everyRPC[name]
		if !known {
			t.Errorf("%s is served, and this table does not say who may call it", name)
			continue
		}
		delete(left, name)
		for caller, conn := range conns {
			err := f.call(conn, m, dynamicpb.NewMessage(m.Input()))
			if want := slices.Contains(strings.Fields(may), caller); isRefusal(err) == want {
				t.Errorf("%s calls %s: %v, want refused: %t", caller, name, err, !want)
			}
			if caller == "nobody" && isRefusal(err) && !strings.Contains(err.Error(), "--tls-client-cert") {
				t.Errorf("%s: nobody is not told what to do: %v", name, err)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is in this table and not served", name)
	}
}

func TestInstanceNamesHaveTheirOwnUsers(t *testing.T) {
	f := newGuardedFarm(t, `
access:
  - {users: [team], instances: [team], may: [execute, read, write, write_results, work]}
  - {users: [user], may: [read, observe]}
`)
	byName := map[string]protoreflect.MethodDescriptor{}
	for _, m := range f.methods() {
		byName[string(m.Name())] = m
	}
	conn := f.dial("team")
	for method, request := range map[string]func(instance string) proto.Message{
		"Execute":            func(n string) proto.Message { return &repb.ExecuteRequest{InstanceName: n} },
		"UpdateActionResult": func(n string) proto.Message { return &repb.UpdateActionResultRequest{InstanceName: n} },
		"BatchUpdateBlobs":   func(n string) proto.Message { return &repb.BatchUpdateBlobsRequest{InstanceName: n} },
		"GetTree":            func(n string) proto.Message { return &repb.GetTreeRequest{InstanceName: n} },
		"Synchronize":        func(n string) proto.Message { return &remoteworker.SynchronizeRequest{InstanceNamePrefix: n} },
		"Serve":              func(n string) proto.Message { return &live.ServeRequest{InstanceNamePrefix: n} },
		"Tell":               func(n string) proto.Message { return &live.Report{InstanceNamePrefix: n} },
		"Read":               func(n string) proto.Message { return &bytestream.ReadRequest{ResourceName: n + "/blobs/a/1"} },
		"Write": func(n string) proto.Message {
			return &bytestream.WriteRequest{ResourceName: n + "/uploads/u/blobs/a/1"}
		},
	} {
		for instance, refused := range map[string]bool{"team": false, "team/a": false, "teams": true, "main/team": true} {
			if err := f.call(conn, byName[method], request(instance)); isRefusal(err) != refused {
				t.Errorf("%s for %q: %v, want refused: %t", method, instance, err, refused)
			}
		}
	}
	for _, test := range []struct {
		caller, instance string
		execute, update  bool
	}{{"team", "team", true, true}, {"team", "main", false, false}, {"user", "team", false, false}} {
		c, err := repb.NewCapabilitiesClient(f.dial(test.caller)).GetCapabilities(t.Context(), &repb.GetCapabilitiesRequest{InstanceName: test.instance})
		if err != nil || c.GetExecutionCapabilities().GetExecEnabled() != test.execute ||
			c.GetCacheCapabilities().GetActionCacheUpdateCapabilities().GetUpdateEnabled() != test.update {
			t.Errorf("%+v: %v, %v", test, c, err)
		}
	}
}

// TestAccessByDefault has no access list: certificates say which callers are workers.
func TestAccessByDefault(t *testing.T) {
	f := newGuardedFarm(t, "")
	for _, m := range f.methods() {
		wanted := map[string]string{
			"Execute": "user team worker admin", "UpdateActionResult": "worker", "Synchronize": "worker", "Drain": "admin",
		}
		who, ok := wanted[string(m.Name())]
		if !ok {
			continue
		}
		for _, caller := range []string{"nobody", "user", "team", "worker", "admin"} {
			err := f.call(f.dial(caller), m, dynamicpb.NewMessage(m.Input()))
			if want := slices.Contains(strings.Fields(who), caller); isRefusal(err) == want {
				t.Errorf("%s calls %s: %v", caller, m.Name(), err)
			}
		}
	}
}

// TestUsersHaveTheirOwnBranches checks that the caller's identity reaches fair sharing.
func TestUsersHaveTheirOwnBranches(t *testing.T) {
	f := newGuardedFarm(t, "queues:\n- levels: [{key: user}, {key: claim, name: cert.ou}]\n")
	conn := f.dial("admin")
	command := blobOf(t, &repb.Command{Arguments: []string{"true"}})
	action := blobOf(t, &repb.Action{CommandDigest: command.GetDigest(), InputRootDigest: digest.Of(digest.SHA256, nil).Proto()})
	if _, err := repb.NewContentAddressableStorageClient(conn).BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{command, action},
	}); err != nil {
		t.Fatal(err)
	}
	stream, err := repb.NewExecutionClient(conn).Execute(t.Context(), &repb.ExecuteRequest{ActionDigest: action.GetDigest()})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remoteworker.NewOperationQueueClient(f.dial("worker")).Synchronize(t.Context(), &remoteworker.SynchronizeRequest{
		WorkerId:     map[string]string{"host": "a"},
		CurrentState: &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}},
	}); err != nil {
		t.Fatal(err)
	}
	operator := admin.NewSchedulerClient(conn)
	queues, err := operator.ListQueues(t.Context(), &admin.ListQueuesRequest{})
	if err != nil || len(queues.GetQueues()) != 1 {
		t.Fatalf("%v, %v", queues, err)
	}
	branch := queues.GetQueues()[0].GetRoot()
	for _, want := range []string{"admin", auth.AdminsGroup} {
		if len(branch.GetChildren()) != 1 || branch.GetChildren()[0].GetKey() != want {
			t.Fatalf("%v, want a branch %s", branch, want)
		}
		branch = branch.GetChildren()[0]
	}
	for user, want := range map[string]int{"admin": 1, "user": 0} {
		list, err := operator.ListOperations(t.Context(), &admin.ListOperationsRequest{Pattern: &admin.Pattern{Attributes: map[string]string{"user": user}}})
		if err != nil || len(list.GetOperations()) != want {
			t.Errorf("operations of %s: %v, %v", user, list, err)
		}
	}
}

func blobOf(t *testing.T, m proto.Message) *repb.BatchUpdateBlobsRequest_Request {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &repb.BatchUpdateBlobsRequest_Request{Digest: digest.Of(digest.SHA256, b).Proto(), Data: b}
}

// writeConfig makes a configuration file.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
