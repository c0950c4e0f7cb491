package farm

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/iscc"
)

// strangersConfig has two users of instance name x, and one of y. Operations are their users' own.
const strangersConfig = `
operations_belong_to: user
access:
  - {users: [user, results], instances: [x], may: [execute, read, write, write_results]}
  - {users: [team], instances: [y], may: [execute, read, write, write_results]}
  - {groups: [forerunner-workers], may: [work]}
  - {users: [admin], may: [administer]}
`

// A thing belongs to another user, or to no one: an operation, a blob, or a message made of blobs.
type thing struct {
	operation                        string
	blob, directory, command, action *repb.Digest
}

// An asker has an identity and the instance name for which it asks.
type asker struct {
	*testing.T
	conn     *grpc.ClientConn
	instance string
}

// A question is a call that names a thing. It returns the outcome as text.
type question struct {
	// operation: it names an operation; else content.
	operation bool
	// asks makes the call.
	asks func(a asker, x thing) string
	// same: the owner of the thing gets the same answer as for a thing that does not exist.
	same bool
}

// strangers lists, for each method, calls that name things of other users. Methods only for
// operators or workers have a nil list, methods that name nothing an empty one. A method that is
// missing here fails the test.
var strangers = map[string][]question{
	"build.bazel.remote.execution.v2.Execution/Execute": {
		{asks: func(a asker, x thing) string { return a.execute(x.action) }},
		{asks: func(a asker, x thing) string { return a.execute(a.action(x.directory, nil)) }},
		{asks: func(a asker, x thing) string {
			return a.execute(a.action(a.put(&repb.Directory{Files: []*repb.FileNode{{Name: "f", Digest: x.blob}}}), nil))
		}},
		{asks: func(a asker, x thing) string {
			return a.execute(a.action(a.put(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "d", Digest: x.directory}}}), nil))
		}},
		{asks: func(a asker, x thing) string { return a.execute(a.action(nil, x.command)) }},
	},
	"build.bazel.remote.execution.v2.Execution/WaitExecution": {{operation: true, asks: func(a asker, x thing) string {
		s, err := repb.NewExecutionClient(a.conn).WaitExecution(a.Context(), &repb.WaitExecutionRequest{Name: x.operation})
		return received(s, err)
	}}},
	"build.bazel.remote.execution.v2.Capabilities/GetCapabilities": {},
	"google.longrunning.Operations/GetOperation": {{operation: true, asks: func(a asker, x thing) string {
		return told(longrunningpb.NewOperationsClient(a.conn).GetOperation(a.Context(), &longrunningpb.GetOperationRequest{Name: x.operation}))
	}}},
	"google.longrunning.Operations/CancelOperation": {{operation: true, asks: func(a asker, x thing) string {
		return told(longrunningpb.NewOperationsClient(a.conn).CancelOperation(a.Context(), &longrunningpb.CancelOperationRequest{Name: x.operation}))
	}}},
	"google.longrunning.Operations/WaitOperation": {{operation: true, same: true, asks: func(a asker, x thing) string {
		return told(longrunningpb.NewOperationsClient(a.conn).WaitOperation(a.Context(), &longrunningpb.WaitOperationRequest{Name: x.operation}))
	}}},
	"google.longrunning.Operations/DeleteOperation": {{operation: true, same: true, asks: func(a asker, x thing) string {
		return told(longrunningpb.NewOperationsClient(a.conn).DeleteOperation(a.Context(), &longrunningpb.DeleteOperationRequest{Name: x.operation}))
	}}},
	"google.longrunning.Operations/ListOperations": nil,
	"build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs": {{asks: func(a asker, x thing) string {
		return told(a.cas().FindMissingBlobs(a.Context(), &repb.FindMissingBlobsRequest{InstanceName: a.instance, BlobDigests: []*repb.Digest{x.blob}}))
	}}},
	"build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs": {{asks: func(a asker, x thing) string {
		return told(a.cas().BatchReadBlobs(a.Context(), &repb.BatchReadBlobsRequest{InstanceName: a.instance, Digests: []*repb.Digest{x.blob}}))
	}}},
	"build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs": {{same: true, asks: func(a asker, x thing) string {
		return told(a.cas().BatchUpdateBlobs(a.Context(), &repb.BatchUpdateBlobsRequest{
			InstanceName: a.instance,
			Requests:     []*repb.BatchUpdateBlobsRequest_Request{{Digest: x.blob, Data: make([]byte, x.blob.GetSizeBytes())}},
		}))
	}}},
	"build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree": {
		{asks: func(a asker, x thing) string { return a.tree(x.directory) }},
		{asks: func(a asker, x thing) string {
			return a.tree(a.put(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "d", Digest: x.directory}}}))
		}},
	},
	"build.bazel.remote.execution.v2.ContentAddressableStorage/SplitBlob": {{same: true, asks: func(a asker, x thing) string {
		return told(a.cas().SplitBlob(a.Context(), &repb.SplitBlobRequest{InstanceName: a.instance, BlobDigest: x.blob}))
	}}},
	"build.bazel.remote.execution.v2.ContentAddressableStorage/SpliceBlob": {{same: true, asks: func(a asker, x thing) string {
		return told(a.cas().SpliceBlob(a.Context(), &repb.SpliceBlobRequest{InstanceName: a.instance, BlobDigest: x.blob}))
	}}},
	"build.bazel.remote.execution.v2.ActionCache/GetActionResult": {{asks: func(a asker, x thing) string {
		return told(repb.NewActionCacheClient(a.conn).GetActionResult(a.Context(), &repb.GetActionResultRequest{InstanceName: a.instance, ActionDigest: x.action}))
	}}},
	"build.bazel.remote.execution.v2.ActionCache/UpdateActionResult": {
		{asks: func(a asker, x thing) string { return a.update(x.action, nil) }},
		{asks: func(a asker, x thing) string { return a.update(a.action(nil, x.command), nil) }},
		{asks: func(a asker, x thing) string {
			return a.update(a.action(nil, nil), &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: "f", Digest: x.blob}}})
		}},
		{asks: func(a asker, x thing) string {
			return a.update(a.action(nil, nil), &repb.ActionResult{StdoutDigest: x.blob})
		}},
		{asks: func(a asker, x thing) string {
			tree := a.put(&repb.Tree{Root: &repb.Directory{Files: []*repb.FileNode{{Name: "f", Digest: x.blob}}}})
			return a.update(a.action(nil, nil), &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{{Path: "d", TreeDigest: tree}}})
		}},
		{asks: func(a asker, x thing) string {
			return a.update(a.action(nil, nil), &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{{Path: "d", RootDirectoryDigest: x.directory}}})
		}},
	},
	"google.bytestream.ByteStream/Read": {
		{asks: func(a asker, x thing) string { return a.read(a.instance + "/blobs/" + name(x.blob)) }},
		{asks: func(a asker, x thing) string { return a.read(a.instance + "/compressed-blobs/zstd/" + name(x.blob)) }},
		{operation: true, same: true, asks: func(a asker, x thing) string { return a.read("streams/" + x.operation + "/stdout") }},
	},
	"google.bytestream.ByteStream/Write": {
		{asks: func(a asker, x thing) string { return a.write(x.blob, make([]byte, 1), false) }},
		{asks: func(a asker, x thing) string { return a.write(x.blob, make([]byte, x.blob.GetSizeBytes()), true) }},
	},
	"google.bytestream.ByteStream/QueryWriteStatus": {{asks: func(a asker, x thing) string {
		return told(bytestream.NewByteStreamClient(a.conn).QueryWriteStatus(a.Context(), &bytestream.QueryWriteStatusRequest{ResourceName: a.resource(x.blob)}))
	}}},
	"buildbarn.remoteworker.OperationQueue/Synchronize": nil,
	"forerunner.live.Outputs/Serve":                     nil,
	"forerunner.live.Outputs/Push":                      nil,
	"forerunner.live.Outputs/Tell":                      nil,
	"buildbarn.fsac.FileSystemAccessCache/GetFileSystemAccessProfile": {{asks: func(a asker, x thing) string {
		return told(fsac.NewFileSystemAccessCacheClient(a.conn).GetFileSystemAccessProfile(a.Context(), &fsac.GetFileSystemAccessProfileRequest{
			InstanceName: a.instance, ReducedActionDigest: x.action,
		}))
	}}},
	"buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile": nil,
	"buildbarn.iscc.InitialSizeClassCache/GetPreviousExecutionStats": {{asks: func(a asker, x thing) string {
		return told(iscc.NewInitialSizeClassCacheClient(a.conn).GetPreviousExecutionStats(a.Context(), &iscc.GetPreviousExecutionStatsRequest{
			InstanceName: a.instance, ReducedActionDigest: x.action,
		}))
	}}},
	"buildbarn.iscc.InitialSizeClassCache/UpdatePreviousExecutionStats": nil,
	"forerunner.reuse.Accounts/Find":                                    nil,
	"forerunner.reuse.Accounts/Keep":                                    nil,
	"forerunner.admin.Scheduler/ListOperations": {{operation: true, asks: func(a asker, x thing) string {
		return told(admin.NewSchedulerClient(a.conn).ListOperations(a.Context(), &admin.ListOperationsRequest{
			Pattern: &admin.Pattern{Attributes: map[string]string{"operation": x.operation}},
		}))
	}}},
	"forerunner.admin.Scheduler/GetOperation": {{operation: true, asks: func(a asker, x thing) string {
		return told(admin.NewSchedulerClient(a.conn).GetOperation(a.Context(), &admin.GetOperationRequest{Name: x.operation}))
	}}},
	// Of operations that have ended: TestRecordsOfOthers.
	"forerunner.admin.Scheduler/ListRecords": {},
	// Builds of one name are each their user's: see TestBuildEventsOfOthers.
	"google.devtools.build.v1.PublishBuildEvent/PublishLifecycleEvent":       {},
	"google.devtools.build.v1.PublishBuildEvent/PublishBuildToolEventStream": {},
	"forerunner.admin.Scheduler/GetRecord":                                   {},
	"forerunner.admin.Scheduler/ListWorkers":                                 nil,
	"forerunner.admin.Scheduler/ListQueues":                                  nil,
	"forerunner.admin.Scheduler/GetSizes":                                    nil,
	"forerunner.admin.Scheduler/Drain":                                       nil,
	"forerunner.admin.Scheduler/Undrain":                                     nil,
	"forerunner.admin.Scheduler/KillOperations":                              nil,
	"forerunner.admin.Scheduler/ListQuotas":                                  nil,
	"forerunner.admin.Scheduler/ListStores":                                  nil,
	"forerunner.admin.Scheduler/PutQuota":                                    nil,
	"forerunner.admin.Scheduler/DeleteQuota":                                 nil,
	"grpc.channelz.v1.Channelz/GetTopChannels":                               nil,
	"grpc.channelz.v1.Channelz/GetServers":                                   nil,
	"grpc.channelz.v1.Channelz/GetServer":                                    nil,
	"grpc.channelz.v1.Channelz/GetServerSockets":                             nil,
	"grpc.channelz.v1.Channelz/GetChannel":                                   nil,
	"grpc.channelz.v1.Channelz/GetSubchannel":                                nil,
	"grpc.channelz.v1.Channelz/GetSocket":                                    nil,
	"grpc.health.v1.Health/Check":                                            {},
	"grpc.health.v1.Health/List":                                             {},
	"grpc.health.v1.Health/Watch":                                            {},
	"grpc.reflection.v1.ServerReflection/ServerReflectionInfo":               {},
	"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo":          {},
}

// identifiers matches the texts that distinguish things in an answer.
var identifiers = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}`)

// plain returns an answer without the names in it.
func plain(answer string) string { return identifiers.ReplaceAllString(answer, "NAME") }

func told[M proto.Message](m M, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(m)
}

// received tells the first message of a stream, or how it ends.
func received[M proto.Message](s interface{ Recv() (M, error) }, err error) string {
	if err != nil {
		return err.Error()
	}
	return told(s.Recv())
}

func name(d *repb.Digest) string { return fmt.Sprintf("%s/%d", d.GetHash(), d.GetSizeBytes()) }

func (a asker) cas() repb.ContentAddressableStorageClient {
	return repb.NewContentAddressableStorageClient(a.conn)
}

// put uploads a message.
func (a asker) put(m proto.Message) *repb.Digest {
	a.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		a.Fatal(err)
	}
	return a.putBytes(b)
}

func (a asker) putBytes(b []byte) *repb.Digest {
	a.Helper()
	d := digest.Of(digest.SHA256, b).Proto()
	resp, err := a.cas().BatchUpdateBlobs(a.Context(), &repb.BatchUpdateBlobsRequest{
		InstanceName: a.instance, Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d, Data: b}},
	})
	if err == nil {
		err = status.ErrorProto(resp.GetResponses()[0].GetStatus())
	}
	if err != nil {
		a.Fatal(err)
	}
	return d
}

// action uploads an action; nil: of a root, or command, of its own.
func (a asker) action(root, command *repb.Digest) *repb.Digest {
	a.Helper()
	if root == nil {
		root = a.put(&repb.Directory{})
	}
	if command == nil {
		command = a.put(&repb.Command{Arguments: []string{"true"}})
	}
	return a.put(&repb.Action{CommandDigest: command, InputRootDigest: root, Platform: &repb.Platform{}})
}

// execute tells how an action begins; it does not wait for its end, nor for another action's.
func (a asker) execute(action *repb.Digest) string {
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	s, err := repb.NewExecutionClient(a.conn).Execute(ctx, &repb.ExecuteRequest{InstanceName: a.instance, ActionDigest: action})
	if err != nil {
		return err.Error()
	}
	m, err := s.Recv()
	if err != nil {
		return err.Error()
	}
	var resp repb.ExecuteResponse
	if m.GetResponse() == nil {
		return "it is accepted"
	}
	if err := m.GetResponse().UnmarshalTo(&resp); err != nil {
		return err.Error()
	}
	return fmt.Sprint(&resp)
}

func (a asker) tree(root *repb.Digest) string {
	s, err := a.cas().GetTree(a.Context(), &repb.GetTreeRequest{InstanceName: a.instance, RootDigest: root})
	return received(s, err)
}

func (a asker) update(action *repb.Digest, r *repb.ActionResult) string {
	if r == nil {
		r = &repb.ActionResult{}
	}
	r.ExecutionMetadata = &repb.ExecutedActionMetadata{Worker: "w"} // otherwise the message is empty, as if it did not exist
	return told(repb.NewActionCacheClient(a.conn).UpdateActionResult(a.Context(), &repb.UpdateActionResultRequest{
		InstanceName: a.instance, ActionDigest: action, ActionResult: r,
	}))
}

func (a asker) read(resource string) string {
	s, err := bytestream.NewByteStreamClient(a.conn).Read(a.Context(), &bytestream.ReadRequest{ResourceName: resource})
	return received(s, err)
}

func (a asker) resource(blob *repb.Digest) string {
	return a.instance + "/uploads/00000000-0000-4000-8000-000000000000/blobs/" + name(blob)
}

func (a asker) write(blob *repb.Digest, b []byte, finish bool) string {
	s, err := bytestream.NewByteStreamClient(a.conn).Write(a.Context())
	if err != nil {
		return err.Error()
	}
	_ = s.Send(&bytestream.WriteRequest{ResourceName: a.resource(blob), Data: b, FinishWrite: finish}) // the answer says why not
	return told(s.CloseAndRecv())
}

// thing makes a thing of the asker, and a similar one that belongs to no one.
func (a asker) thing() (own, nobodys thing) {
	a.Helper()
	own.blob = a.putBytes([]byte("a secret of " + a.instance))
	own.directory = a.put(&repb.Directory{Files: []*repb.FileNode{{Name: "secret", Digest: own.blob}}})
	own.command = a.put(&repb.Command{Arguments: []string{"a secret program of " + a.instance}})
	own.action = a.put(&repb.Action{CommandDigest: own.command, InputRootDigest: own.directory, Platform: &repb.Platform{}})
	s, err := repb.NewExecutionClient(a.conn).Execute(a.Context(), &repb.ExecuteRequest{InstanceName: a.instance, ActionDigest: own.action})
	if err != nil {
		a.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil || m.GetDone() {
		a.Fatal(m, err)
	}
	own.operation = m.GetName()
	if answer := a.update(own.action, &repb.ActionResult{StdoutDigest: own.blob}); !strings.Contains(answer, own.blob.GetHash()) {
		a.Fatal(answer)
	}
	other := func(d *repb.Digest) *repb.Digest {
		return &repb.Digest{Hash: digest.Of(digest.SHA256, []byte("nobody's "+d.GetHash())).Hash(), SizeBytes: d.GetSizeBytes()}
	}
	return own, thing{
		operation: "operations/00000000-0000-4000-8000-000000000000",
		blob:      other(own.blob), directory: other(own.directory), command: other(own.command), action: other(own.action),
	}
}

// remember has a worker store what is known of an action's runs.
func (f *guardedFarm) remember(instance string, action *repb.Digest) {
	f.Helper()
	conn := f.dial("worker")
	_, err := fsac.NewFileSystemAccessCacheClient(conn).UpdateFileSystemAccessProfile(f.Context(), &fsac.UpdateFileSystemAccessProfileRequest{
		InstanceName: instance, ReducedActionDigest: action, FileSystemAccessProfile: &fsac.FileSystemAccessProfile{BloomFilter: []byte{1}, BloomFilterHashFunctions: 1},
	})
	if err == nil {
		_, err = iscc.NewInitialSizeClassCacheClient(conn).UpdatePreviousExecutionStats(f.Context(), &iscc.UpdatePreviousExecutionStatsRequest{
			InstanceName: instance, ReducedActionDigest: action, PreviousExecutionStats: &iscc.PreviousExecutionStats{SizeClasses: map[uint32]*iscc.PerSizeClassStats{1: {}}},
		})
	}
	if err != nil {
		f.Fatal(err)
	}
}

// TestStrangers asks in every way for things of another user and for things that do not exist. The
// answers must be the same. Another user of the same instance name asks for operations, one of
// another instance name also for content.
func TestStrangers(t *testing.T) {
	f := guard(t, &Scheduler{Storage: storage.Settings{Isolate: true}}, strangersConfig)
	owner := asker{t, f.dial("user"), "x"}
	colleague, foreigner := asker{t, f.dial("results"), "x"}, asker{t, f.dial("team"), "y"}
	theirs, nobodys := owner.thing()
	f.remember("x", theirs.action)
	left := maps.Clone(strangers)
	methods := f.methods()
	slices.SortFunc(methods, func(a, b method) int { // calls that end operations come last
		return strings.Compare(strings.Replace(string(a.Name()), "Cancel", "~", 1), strings.Replace(string(b.Name()), "Cancel", "~", 1))
	})
	for _, m := range methods {
		full := string(m.Parent().FullName()) + "/" + string(m.Name())
		questions, known := strangers[full]
		if !known {
			t.Errorf("%s is served, and nobody has thought of what it can name that is somebody else's", full)
			continue
		}
		delete(left, full)
		if questions == nil {
			if err := f.call(foreigner.conn, m, dynamicpb.NewMessage(m.Input())); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s is for operators or workers: %v", full, err)
			}
		}
		for i, q := range questions {
			askers := []asker{foreigner}
			if q.operation {
				askers = append(askers, colleague)
			}
			for _, a := range askers {
				got, want := plain(q.asks(a, theirs)), plain(q.asks(a, nobodys))
				if got != want {
					t.Errorf("%s, question %d in %q: of somebody's\n\t%s\nof nobody's\n\t%s", full, i, a.instance, got, want)
				}
			}
			if q.same {
				continue
			}
			if got, none := plain(q.asks(owner, theirs)), plain(q.asks(owner, nobodys)); got == none {
				t.Errorf("%s, question %d: the owner is told of his own as of nothing:\n\t%s", full, i, got)
			}
		}
	}
	for full := range left {
		t.Errorf("%s is in this table and not served", full)
	}
}

// page returns how a page is answered.
func (f *guardedFarm) page(caller, path string) (code int, text string) {
	f.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(f.callers[caller])}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "https://"+f.pages+path, nil)
	if err != nil {
		f.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestPagesOfStrangers does the same on the pages.
func TestPagesOfStrangers(t *testing.T) {
	f := guard(t, &Scheduler{Storage: storage.Settings{Isolate: true}}, strangersConfig)
	theirs, nobodys := asker{t, f.dial("user"), "x"}.thing()
	for _, page := range []struct {
		path  func(x thing) string
		who   string
		code  int
		owner bool // sees something else
	}{
		{func(x thing) string { return "/" + x.operation }, "results team", http.StatusNotFound, true},
		{func(x thing) string { return "/" + x.operation + "/stdout" }, "results team", http.StatusOK, false},
		{func(x thing) string { return "/operations?pattern=operation%3D" + x.operation }, "results team", http.StatusOK, true},
		{func(thing) string { return "/operations" }, "results team", http.StatusOK, false},
		{func(x thing) string { return "/actions/sha256/" + name(x.action) + "?instance=x" }, "team", http.StatusNotFound, true},
		{func(x thing) string { return "/actions/sha256/" + name(x.action) + "?instance=y" }, "team", http.StatusNotFound, false},
		{func(thing) string { return "/" }, "user results team", http.StatusOK, false}, // leads to the history
		{func(thing) string { return "/invocations" }, "user results team", http.StatusForbidden, false},
		{func(thing) string { return "/workers" }, "user results team", http.StatusForbidden, false},
		{func(thing) string { return "/quotas" }, "user results team", http.StatusForbidden, false},
		{func(thing) string { return "/metrics" }, "user results team", http.StatusForbidden, false},
		{func(thing) string { return "/static/style.css" }, "user results team", http.StatusOK, false},
	} {
		for who := range strings.FieldsSeq(page.who) {
			code, got := f.page(who, page.path(theirs))
			_, want := f.page(who, page.path(nobodys))
			if code != page.code || plain(got) != plain(want) || strings.Contains(got, "secret") {
				t.Errorf("%s for %s: %d, of somebody's\n%s\nof nobody's\n%s", page.path(theirs), who, code, got, want)
			}
		}
		if !page.owner {
			continue
		}
		for _, who := range []string{"user", "admin"} {
			code, got := f.page(who, page.path(theirs))
			if _, none := f.page(who, page.path(nobodys)); code != http.StatusOK || plain(got) == plain(none) {
				t.Errorf("%s for %s: %d, %s", page.path(theirs), who, code, got)
			}
		}
	}
}

// TestJoinedRunsAreApart has two users of one instance name ask for the same action: it is run
// once, and each has an operation that the other does not see.
func TestJoinedRunsAreApart(t *testing.T) {
	f := guard(t, &Scheduler{}, strangersConfig)
	one, two := asker{t, f.dial("user"), "x"}, asker{t, f.dial("results"), "x"}
	action := one.action(nil, nil)
	started := func(a asker) string {
		s, err := repb.NewExecutionClient(a.conn).Execute(t.Context(), &repb.ExecuteRequest{InstanceName: "x", ActionDigest: action})
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m.GetName()
	}
	first, second := started(one), started(two)
	seen := func(a asker) (list []string) {
		resp, err := admin.NewSchedulerClient(a.conn).ListOperations(t.Context(), &admin.ListOperationsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range resp.GetOperations() {
			list = append(list, op.GetName())
		}
		return list
	}
	all := []string{first, second} // the oldest comes first
	if a, b, c := seen(one), seen(two), seen(asker{t, f.dial("admin"), ""}); !slices.Equal(a, []string{first}) ||
		!slices.Equal(b, []string{second}) || !slices.Equal(c, all) {
		t.Errorf("%q, %q and an administrator %q; operations are %q", a, b, c, all)
	}
	if _, err := longrunningpb.NewOperationsClient(one.conn).CancelOperation(t.Context(), &longrunningpb.CancelOperationRequest{Name: first}); err != nil {
		t.Error(err)
	}
	for _, who := range []string{"results", "admin"} { // an observer sees it with every call
		if m, err := longrunningpb.NewOperationsClient(f.dial(who)).GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: second}); err != nil || m.GetDone() {
			t.Errorf("%s gets %v, %v", who, m, err)
		}
	}
	if got := seen(two); !slices.Equal(got, []string{second}) {
		t.Errorf("when the first has cancelled his, the second sees %q", got)
	}
}

// TestOperationsBelongToSomebodyKnown: without authentication, operations cannot belong to users.
func TestOperationsBelongToSomebodyKnown(t *testing.T) {
	s := &Scheduler{Data: t.TempDir(), Listen: "127.0.0.1:0", ConfigFile: writeConfig(t, "operations_belong_to: user\n")}
	if _, err := s.check(); err == nil || !strings.Contains(err.Error(), "operations_belong_to: user: no caller can be authenticated") {
		t.Error(err)
	}
}
