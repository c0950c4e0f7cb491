package auth

import (
	"fmt"
	"maps"
	"strings"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	oldreflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/publish"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/proto/reuse"
)

// The methods of ByteStream, for which the generated code has no names.
const (
	byteStreamRead  = "/google.bytestream.ByteStream/Read"
	byteStreamWrite = "/google.bytestream.ByteStream/Write"
	byteStreamQuery = "/google.bytestream.ByteStream/QueryWriteStatus"
)

// A need is the right that a method needs. With the zero right, a method is for every caller that
// has any right; free methods are for everyone.
type need struct {
	right Right
	scope scope
	// or is a right that does as well, for all instance names; empty: none does.
	or   Right
	free bool
	// of is the instance name for which the right is needed; nil: the instance name of the request.
	of *string
}

// String names the rights, for errors.
func (n need) String() string {
	switch {
	case n.right == "":
		return "any right"
	case n.or != "":
		return fmt.Sprintf("the right %q or %q", n.right, n.or)
	}
	return fmt.Sprintf("the right %q", n.right)
}

// methods are all methods of our programs. Those of the admin service that do more than show need
// Administer.
func methods() map[string]need {
	needs := map[string]need{}
	for _, m := range admin.Scheduler_ServiceDesc.Methods {
		needs["/"+admin.Scheduler_ServiceDesc.ServiceName+"/"+m.MethodName] = need{right: Administer, scope: all}
	}
	maps.Copy(needs, shown())
	return needs
}

// shown are the methods of all services, except the methods of the admin service that change
// something.
func shown() map[string]need {
	return map[string]need{
		repb.Execution_Execute_FullMethodName:       {right: Execute},
		repb.Execution_WaitExecution_FullMethodName: {right: Execute, scope: some, or: Observe}, // for this method and others see Owns
		// A build belongs to its publisher, for an instance name for which he may execute.
		publish.PublishBuildEvent_PublishLifecycleEvent_FullMethodName:       {right: Execute, scope: some},
		publish.PublishBuildEvent_PublishBuildToolEventStream_FullMethodName: {right: Execute, scope: some},

		repb.Capabilities_GetCapabilities_FullMethodName:        {},
		longrunningpb.Operations_GetOperation_FullMethodName:    {right: Execute, scope: some, or: Observe},
		longrunningpb.Operations_CancelOperation_FullMethodName: {right: Execute, scope: some, or: Administer},
		longrunningpb.Operations_WaitOperation_FullMethodName:   {right: Execute, scope: some, or: Observe},
		longrunningpb.Operations_DeleteOperation_FullMethodName: {right: Execute, scope: some, or: Administer},
		longrunningpb.Operations_ListOperations_FullMethodName:  {right: Observe, scope: all},

		repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName: {right: Read},
		repb.ContentAddressableStorage_BatchReadBlobs_FullMethodName:   {right: Read},
		repb.ContentAddressableStorage_GetTree_FullMethodName:          {right: Read},
		repb.ContentAddressableStorage_SplitBlob_FullMethodName:        {right: Read},
		repb.ContentAddressableStorage_SpliceBlob_FullMethodName:       {right: Write},
		repb.ContentAddressableStorage_BatchUpdateBlobs_FullMethodName: {right: Write},
		byteStreamRead:  {right: Read}, // Execute for output of commands, see needOf
		byteStreamWrite: {right: Write},
		byteStreamQuery: {right: Write},
		repb.ActionCache_GetActionResult_FullMethodName:    {right: Read},
		repb.ActionCache_UpdateActionResult_FullMethodName: {right: WriteResults},

		remoteworker.OperationQueue_Synchronize_FullMethodName:                  {right: Work},
		live.Outputs_Serve_FullMethodName:                                       {right: Work},
		live.Outputs_Push_FullMethodName:                                        {right: Work, scope: some},
		live.Outputs_Tell_FullMethodName:                                        {right: Work},
		fsac.FileSystemAccessCache_GetFileSystemAccessProfile_FullMethodName:    {right: Read},
		fsac.FileSystemAccessCache_UpdateFileSystemAccessProfile_FullMethodName: {right: Work},
		iscc.InitialSizeClassCache_GetPreviousExecutionStats_FullMethodName:     {right: Read},
		iscc.InitialSizeClassCache_UpdatePreviousExecutionStats_FullMethodName:  {right: Work},
		// A caller that may keep a run decides on results.
		reuse.Accounts_Find_FullMethodName: {right: Work},
		reuse.Accounts_Keep_FullMethodName: {right: Work},

		admin.Scheduler_ListWorkers_FullMethodName:    {right: Observe, scope: all},
		admin.Scheduler_ListQueues_FullMethodName:     {right: Observe, scope: all},
		admin.Scheduler_ListOperations_FullMethodName: {right: Execute, scope: some, or: Observe}, // see Owns
		admin.Scheduler_GetOperation_FullMethodName:   {right: Execute, scope: some, or: Observe}, // see Owns
		admin.Scheduler_ListRecords_FullMethodName:    {right: Execute, scope: some, or: Observe}, // see Owns
		admin.Scheduler_GetRecord_FullMethodName:      {right: Execute, scope: some, or: Observe}, // see Owns
		admin.Scheduler_GetSizes_FullMethodName:       {right: Observe, scope: all},
		admin.Scheduler_ListQuotas_FullMethodName:     {right: Observe, scope: all},
		admin.Scheduler_ListStores_FullMethodName:     {right: Observe, scope: all},

		healthpb.Health_Check_FullMethodName:                                 {free: true},
		healthpb.Health_List_FullMethodName:                                  {free: true},
		healthpb.Health_Watch_FullMethodName:                                 {free: true},
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:    {},
		oldreflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName: {},

		// Like profiles of the program: they show connected callers.
		channelzpb.Channelz_GetTopChannels_FullMethodName:   {right: Administer, scope: all},
		channelzpb.Channelz_GetServers_FullMethodName:       {right: Administer, scope: all},
		channelzpb.Channelz_GetServer_FullMethodName:        {right: Administer, scope: all},
		channelzpb.Channelz_GetServerSockets_FullMethodName: {right: Administer, scope: all},
		channelzpb.Channelz_GetChannel_FullMethodName:       {right: Administer, scope: all},
		channelzpb.Channelz_GetSubchannel_FullMethodName:    {right: Administer, scope: all},
		channelzpb.Channelz_GetSocket_FullMethodName:        {right: Administer, scope: all},
	}
}

// OfStore returns a Guard for the store of a worker that lets only other workers read it: they must
// have the right Work for the instance name prefix of this worker, because its store has the inputs
// and outputs of actions of all instance names below.
func (g *Guard) OfStore(prefix string) *Guard {
	lending := *g
	lending.methods = maps.Clone(g.methods)
	for _, m := range []string{
		repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName,
		repb.ContentAddressableStorage_BatchReadBlobs_FullMethodName,
		repb.ContentAddressableStorage_GetTree_FullMethodName,
		byteStreamRead, byteStreamQuery,
	} {
		lending.methods[m] = need{right: Work, of: &prefix}
	}
	return &lending
}

// isOutputStream reports whether a resource is the output of a command. No blob has such a name.
func isOutputStream(resource string) bool {
	_, _, ok := names.ParseStream(resource)
	return ok
}

// needOf returns the need of a method for a message, and for which instance name.
func needOf(n need, message any) (_ need, instance string) {
	if n.of != nil {
		return n, *n.of
	}
	switch m := message.(type) {
	case interface{ GetInstanceName() string }:
		return n, m.GetInstanceName()
	case interface{ GetInstanceNamePrefix() string }:
		return n, m.GetInstanceNamePrefix()
	case interface{ GetResourceName() string }:
		name := m.GetResourceName()
		if n.right == Read && isOutputStream(name) {
			return need{right: Execute, scope: some, or: Observe}, ""
		}
		return n, instanceOf(name)
	}
	return n, ""
}

// instanceOf returns the instance name at the beginning of a resource name: the part before the
// first of the words that no instance name may have (REv2, ByteStream).
func instanceOf(resource string) string {
	end := 0
	for part := range strings.SplitSeq(resource, "/") {
		if part == "blobs" || part == "uploads" || part == "compressed-blobs" {
			return strings.TrimSuffix(resource[:end], "/")
		}
		end += len(part) + 1
	}
	return resource // malformed, which the service reports
}
