package dial

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/records/redistest"
)

// healthServer serves a health service, over TLS if there are credentials, until stop is called.
func healthServer(t *testing.T, address string, c credentials.TransportCredentials) (stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	if c != nil {
		options = append(options, grpc.Creds(c))
	}
	s := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(s, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	return func() {
		s.Stop()
		<-served
	}
}

// TestDialSeveral has servers come and go at two addresses; calls get to the one that is there.
func TestDialSeveral(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("server")
	source, err := certs.NewServer(certs.Files{Cert: cert, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for scheme, credentials := range map[string]credentials.TransportCredentials{"grpc": nil, "grpcs": source.Credentials()} {
		t.Run(scheme, func(t *testing.T) {
			addresses := [2]string{freeport.Address(t), freeport.Address(t)}
			conn, err := (&Client{CA: a.File}).Dial(scheme + "://" + addresses[0] + "," + addresses[1])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := healthpb.NewHealthClient(conn)
			answers := func() bool {
				_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
				return err == nil
			}
			for _, n := range []int{1, 0, 0, 1} {
				stop := healthServer(t, addresses[n], credentials)
				start := time.Now()
				redistest.Eventually(t, "there is an answer", answers)
				t.Logf("answered after %s", time.Since(start))
				stop()
				redistest.Eventually(t, "there is none", func() bool { return !answers() })
			}
		})
	}
}

// TestCheck looks at addresses as users may type them.
func TestCheck(t *testing.T) {
	for address, want := range map[string]struct{ target, port bool }{
		"farm:8980": {true, true}, "grpc://farm:8980": {true, false}, "grpcs://a:1,b:2": {true, false}, "[::1]:0": {true, true},
		":8980": {true, true}, "foo://x": {}, "http://farm:80": {}, "farm": {}, "farm:": {}, "farm:many": {}, "farm:70000": {},
	} {
		if err := Check(address); (err == nil) != want.target {
			t.Errorf("connect to %s: %v", address, err)
		}
		if err := CheckPort(address); (err == nil) != want.port {
			t.Errorf("listen on %s: %v", address, err)
		}
	}
}
