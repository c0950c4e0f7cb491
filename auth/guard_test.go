package auth

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
)

// TestCapabilitiesOfCallers: a client is told that it can do what it may.
func TestCapabilitiesOfCallers(t *testing.T) {
	all := &repb.ServerCapabilities{
		ExecutionCapabilities: &repb.ExecutionCapabilities{ExecEnabled: true},
		CacheCapabilities: &repb.CacheCapabilities{
			ActionCacheUpdateCapabilities: &repb.ActionCacheUpdateCapabilities{UpdateEnabled: true},
		},
	}
	for _, test := range []struct {
		may              []Right
		instance         string
		execute, publish bool
	}{
		{[]Right{Read}, "main", false, false},
		{[]Right{Read, Execute}, "main", true, false},
		{[]Right{Read, Execute}, "other", false, false},
		{[]Right{Read, WriteResults}, "main", false, true},
		{[]Right{Read, WriteResults}, "other", false, false},
	} {
		g, err := New(Options{Certificates: true, Rules: []Rule{{Users: []string{"alice"}, Instances: []string{"main"}, May: test.may}}})
		if err != nil {
			t.Fatal(err)
		}
		c := &call{guard: g, who: &Identity{User: "alice"}}
		got := c.adapt(all, test.instance)
		execute := got.GetExecutionCapabilities().GetExecEnabled()
		publish := got.GetCacheCapabilities().GetActionCacheUpdateCapabilities().GetUpdateEnabled()
		if execute != test.execute || publish != test.publish {
			t.Errorf("%v, %q: executes %t, publishes %t", test.may, test.instance, execute, publish)
		}
	}
	if !all.ExecutionCapabilities.ExecEnabled {
		t.Error("what the server can do has changed")
	}
}

// TestOfStore: workers may read everything in a worker's store. Other callers may read nothing.
func TestOfStore(t *testing.T) {
	full, err := New(Options{Certificates: true, Rules: []Rule{
		{Users: []string{"worker"}, May: []Right{Work}},
		{Users: []string{"elsewhere"}, Instances: []string{"other"}, May: []Right{Work}},
		{Users: []string{"client"}, May: []Right{Read, Write, WriteResults, Execute}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g := full.OfStore("main")
	for method, message := range map[string]any{
		repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName: &repb.FindMissingBlobsRequest{InstanceName: "x"},
		repb.ContentAddressableStorage_BatchReadBlobs_FullMethodName:   &repb.BatchReadBlobsRequest{InstanceName: "x"},
		repb.ContentAddressableStorage_GetTree_FullMethodName:          &repb.GetTreeRequest{InstanceName: "x"},
		byteStreamRead:  &bytestream.ReadRequest{ResourceName: "x/blobs/0/0"},
		byteStreamQuery: &bytestream.QueryWriteStatusRequest{ResourceName: "x/uploads/0/blobs/0/0"},
	} {
		for user, want := range map[string]bool{"worker": true, "elsewhere": false, "client": false} {
			c := &call{guard: g, method: method, need: g.methods[method], who: &Identity{User: user}}
			if err := c.authorize(message); (err == nil) != want {
				t.Errorf("%s by %s: %v", method, user, err)
			}
		}
	}
	c := &call{guard: full, method: byteStreamRead, need: full.methods[byteStreamRead], who: &Identity{User: "client"}}
	if err := c.authorize(&bytestream.ReadRequest{ResourceName: "x/blobs/0/0"}); err != nil {
		t.Errorf("elsewhere a client may read no more: %v", err)
	}
}
