package farm

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth/certtest"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
)

// storeWith opens a store that has a blob.
func storeWith(t *testing.T, text string) (*disk.Store, digest.Digest) {
	t.Helper()
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	d := digest.Of(digest.SHA256, []byte(text))
	if err := store.PutBytes(t.Context(), d, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return store, d
}

// served has a worker serve a store until the test ends, and returns the address for others.
func (w *Worker) served(t *testing.T, store *disk.Store) string {
	t.Helper()
	w.Logger = zap.NewNop()
	protect, err := w.protect()
	if err != nil {
		t.Fatal(err)
	}
	s := &Started{w: w, checked: checkedWorker{protect: protect}}
	cache, stop, err := s.serve(t.Context(), t.Context(), serve.Shown{Registry: prometheus.NewRegistry(), Ready: &serve.Readiness{}}, store, &serve.Activity{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return cache
}

// readAs reads a blob as another worker does.
func readAs(t *testing.T, w *Worker, cache string, d digest.Digest) (string, error) {
	t.Helper()
	conn, err := w.dialPeer(cache)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := casclient.New(conn, casclient.Options{InstanceName: "main"}).Read(t.Context(), d)
	return string(text), err
}

// TestServeCache: only workers of the same instance names may read a worker's store, because it has
// the content of all these instance names.
func TestServeCache(t *testing.T) {
	authority := certtest.New(t)
	cert, key := authority.Server("worker-1")
	workers, workersKey := authority.Client("worker-2", "forerunner-workers")
	users, usersKey := authority.Client("alice")
	store, d := storeWith(t, "a blob")
	ports := serve.Ports{Cert: cert, Key: key, ClientCA: authority.File}
	open := &Worker{ServeCache: "localhost:0", Ports: ports}
	// The scheduler's file, as it is.
	strict := &Worker{ServeCache: "127.0.0.1:0", Ports: ports, ConfigFile: writeConfig(t, `
size_classes:
  - classes: [1, 4]
access:
  - groups: [forerunner-workers]
    may: [work]
`)}
	apart := &Worker{ServeCache: "127.0.0.1:0", InstancePrefix: "a", Ports: ports, ConfigFile: writeConfig(t, `
access:
  - {users: [worker-2], instances: [b], may: [work]}
  - {users: [worker-3], instances: [a], may: [work]}
  - {users: [alice], may: [read, write, execute, observe]}
`)}
	third, thirdKey := authority.Client("worker-3")
	everybody, fewer, one := open.served(t, store), strict.served(t, store), apart.served(t, store)
	if !strings.HasPrefix(everybody, "grpcs://localhost:") || !strings.HasPrefix(fewer, "grpcs://127.0.0.1:") {
		t.Fatalf("served at %s and %s", everybody, fewer)
	}
	for what, test := range map[string]struct {
		client dial.Client
		cache  string
		want   codes.Code
	}{
		"worker":         {dial.Client{CA: authority.File, Cert: workers, Key: workersKey}, everybody, codes.OK},
		"worker, strict": {dial.Client{CA: authority.File, Cert: workers, Key: workersKey}, fewer, codes.OK},
		"user":           {dial.Client{CA: authority.File, Cert: users, Key: usersKey}, everybody, codes.PermissionDenied},
		"user, strict":   {dial.Client{CA: authority.File, Cert: users, Key: usersKey}, fewer, codes.PermissionDenied},
		"user, apart":    {dial.Client{CA: authority.File, Cert: users, Key: usersKey}, one, codes.PermissionDenied},
		"worker of b":    {dial.Client{CA: authority.File, Cert: workers, Key: workersKey}, one, codes.PermissionDenied},
		"worker of a":    {dial.Client{CA: authority.File, Cert: third, Key: thirdKey}, one, codes.OK},
		"nobody":         {dial.Client{CA: authority.File}, everybody, codes.Unauthenticated},
	} {
		t.Run(what, func(t *testing.T) {
			text, err := readAs(t, &Worker{Client: test.client}, test.cache, d)
			if status.Code(err) != test.want || err == nil && text != "a blob" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

func TestServeCacheIsNamed(t *testing.T) {
	store, d := storeWith(t, "a blob")
	w := &Worker{ServeCache: "127.0.0.1:0", Scheduler: "grpc://127.0.0.1:8980"}
	if text, err := readAs(t, w, w.served(t, store), d); err != nil || text != "a blob" {
		t.Errorf("%q, %v", text, err)
	}
	for what, test := range map[string]Worker{
		"nothing is served":                {Scheduler: "grpc://127.0.0.1:8980"},
		"others would find their own host": {ServeCache: "127.0.0.1:0", Scheduler: "grpcs://10.0.0.1:8980,127.0.0.1:8980"},
	} {
		if cache := test.served(t, store); cache != "" {
			t.Errorf("%s: served at %s", what, cache)
		}
	}
	for address, want := range map[string]string{
		":8983": "give a host", "0.0.0.0:8983": "give a host", "[::]:8983": "give a host",
		"10.0.0.1": "missing port", "192.0.2.1:8983": "--insecure-listen",
	} {
		w := &Worker{ServeCache: address, Logger: zap.NewNop()}
		if err := w.checkServeCache(); err == nil ||
			!strings.Contains(err.Error(), "--serve-cache") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	w = &Worker{ConfigFile: "/nowhere", Logger: zap.NewNop()}
	if _, err := w.protect(); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// hearTokens answers all calls, and sends their tokens to a channel.
func hearTokens(t *testing.T) (address string, heard <-chan string) {
	t.Helper()
	tokens := make(chan string, 10)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		tokens <- strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "authorization"), ",")
		return stream.SendMsg(&emptypb.Empty{})
	}))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), tokens
}

// A worker sends its token to its scheduler only, not to peers that the scheduler names.
func TestPeersGetNoToken(t *testing.T) {
	address, heard := hearTokens(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &Worker{Client: dial.Client{Token: file}}
	for _, test := range []struct {
		dial func(string) (*grpc.ClientConn, error)
		want string
	}{{w.Client.Dial, "Bearer secret"}, {w.dialPeer, ""}} {
		conn, err := test.dial("grpc://" + address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Invoke(t.Context(), "/any/Call", &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			t.Error(err)
		} else if got := <-heard; got != test.want {
			t.Errorf("heard token %q, want %q", got, test.want)
		}
		_ = conn.Close()
	}
}
