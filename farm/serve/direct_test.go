package serve

import (
	"maps"
	"net"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// TestDirect: calls within the process are those of a trusted caller, and are counted, observed and
// limited like others. A caller of unknown origin gets no further there than elsewhere.
func TestDirect(t *testing.T) {
	registry, activity := prometheus.NewRegistry(), &Activity{}
	protect := guarded(t)
	protect.OwnUser = true
	server, _, err := NewGRPC(registry, activity, protect, Callers{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	repb.RegisterContentAddressableStorageServer(server, &repb.UnimplementedContentAddressableStorageServer{})
	direct := &Direct{}
	if conn, err := direct.Connect(); status.Code(err) != codes.Unavailable {
		t.Errorf("before there is a server: %v, %v", conn, err)
	}
	var opened, closed int
	direct.Serve(server, func(remote net.Addr) (net.Addr, func()) {
		opened++
		return remote, func() { closed++ }
	})
	client := dial.Client{Within: direct.Connect, Token: "/no/such/file"}
	conn, err := client.Open("grpc://in-process:0")
	if err != nil {
		t.Fatal(err)
	}
	cas := repb.NewContentAddressableStorageClient(conn)
	if activity.MovesBlobs() {
		t.Error("somebody moves blobs before any call")
	}
	if _, err := cas.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("the trusted caller does not reach the handler: %v", err)
	}
	if !activity.MovesBlobs() {
		t.Error("the call has no effect on the activity of callers")
	}
	const find = repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName
	if got, want := counted(t, registry), (map[string]float64{find + " Unimplemented": 1}); !maps.Equal(got, want) {
		t.Errorf("%v are counted, want %v", got, want)
	}
	large := &healthpb.HealthCheckRequest{Service: strings.Repeat("x", fewBytes)}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request above the limit of its method: %v", err)
	}

	stranger := server.Dial(peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}, inprocess.ConnOptions{})
	_, err = repb.NewContentAddressableStorageClient(stranger).FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a caller without identity: %v", err)
	}
	for range 2 {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if opened != 1 || closed != 1 {
		t.Errorf("%d connections were opened, %d closed", opened, closed)
	}
}
