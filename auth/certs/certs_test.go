package certs_test

import (
	"context"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/auth/certtest"
)

// serve starts a server. Each call sends the common name of its caller to callers.
func serve(t *testing.T, f certs.Files) (address string, callers chan string) {
	t.Helper()
	return serveLogging(t, f, nil)
}

func serveLogging(t *testing.T, f certs.Files, log *zap.Logger) (address string, callers chan string) {
	t.Helper()
	source, err := certs.NewServer(f, log)
	if err != nil {
		t.Fatal(err)
	}
	callers = make(chan string, 10)
	s := grpc.NewServer(grpc.Creds(source.Credentials()), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			p, _ := peer.FromContext(ctx)
			name := "nobody"
			if chains := p.AuthInfo.(credentials.TLSInfo).State.VerifiedChains; len(chains) > 0 {
				name = chains[0][0].Subject.CommonName
			}
			callers <- name
			return handler(ctx, req)
		}))
	healthpb.RegisterHealthServer(s, health.NewServer())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), callers
}

func connect(t *testing.T, address string, f certs.Files) *grpc.ClientConn {
	t.Helper()
	source, err := certs.NewClient(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(source.Credentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func check(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func TestBothSidesShowWhoTheyAre(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	cert, key := ours.Server("server")
	address, callers := serve(t, certs.Files{Cert: cert, Key: key, CA: ours.File})
	aliceCert, aliceKey := ours.Client("alice")
	malloryCert, malloryKey := others.Client("alice")
	for _, test := range []struct {
		name  string
		files certs.Files
		want  string // the caller, or with a "!" part of the error
	}{
		{"certificate", certs.Files{CA: ours.File, Cert: aliceCert, Key: aliceKey}, "alice"},
		{"no certificate", certs.Files{CA: ours.File}, "nobody"},
		{"certificate of another authority", certs.Files{CA: ours.File, Cert: malloryCert, Key: malloryKey}, "!Unavailable"},
		{"server of another authority", certs.Files{CA: others.File}, "!unknown authority"},
		{"authorities of the system", certs.Files{}, "!unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(t, connect(t, address, test.files))
			if fault, bad := strings.CutPrefix(test.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), fault) {
					t.Errorf("%v, want %q", err, fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := <-callers; got != test.want {
				t.Errorf("the caller was %q, want %q", got, test.want)
			}
		})
	}
}

// TestFilesAreTakenUpByNewConnections replaces the server's authority and all certificates. New
// connections must use the new files; existing connections must continue.
func TestFilesAreTakenUpByNewConnections(t *testing.T) {
	before, after := certtest.New(t), certtest.New(t)
	dir := t.TempDir()
	files := certs.Files{
		Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca"),
	}
	install := func(a *certtest.Authority) {
		cert, key := a.Server("server")
		for from, to := range map[string]string{cert: files.Cert, key: files.Key, a.File: files.CA} {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(before)
	address, _ := serve(t, files)
	client := func(a *certtest.Authority) certs.Files {
		cert, key := a.Client("alice")
		return certs.Files{CA: a.File, Cert: cert, Key: key}
	}
	old := connect(t, address, client(before))
	if err := check(t, old); err != nil {
		t.Fatal(err)
	}
	install(after)
	deadline := time.Now().Add(time.Minute)
	for check(t, connect(t, address, client(after))) != nil {
		if time.Now().After(deadline) {
			t.Fatal("new files were not taken up")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := check(t, connect(t, address, client(before))); err == nil {
		t.Error("a new connection went by the old files")
	}
	if err := check(t, old); err != nil {
		t.Errorf("a connection that was there broke: %v", err)
	}
}

func TestFilesAreChecked(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("a")
	_, otherKey := a.Server("b")
	for _, test := range []struct {
		name  string
		files certs.Files
		want  string
	}{
		{"no key", certs.Files{Cert: cert}, "its key"},
		{"no file", certs.Files{Cert: cert, Key: "/nowhere"}, "/nowhere"},
		{"another key", certs.Files{Cert: cert, Key: otherKey}, "private key does not match"},
		{"no authority", certs.Files{Cert: cert, Key: key, CA: key}, "no certificate of an authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, open := range []func() error{
				func() error { _, err := certs.NewServer(test.files, nil); return err },
				func() error { _, err := certs.NewClient(test.files, nil); return err },
			} {
				if err := open(); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
			}
		})
	}
}

// TestRefusedCertificates: a client whose certificate is refused learns why, whichever it notices
// first, the alert or the end of the connection; one that sends none, as its authority would not be
// accepted, logs that.
func TestRefusedCertificates(t *testing.T) {
	ours, others := certtest.New(t), certtest.Named(t, "stranger")
	cert, key := ours.Server("server")
	address, callers := serve(t, certs.Files{Cert: cert, Key: key, CA: ours.File})
	oldCert, oldKey := ours.Issue("old", &x509.Certificate{NotAfter: time.Now().Add(-time.Hour)})
	for range 100 {
		conn := connect(t, address, certs.Files{CA: ours.File, Cert: oldCert, Key: oldKey})
		if err := check(t, conn); err == nil || !strings.Contains(err.Error(), "remote error: tls: expired certificate") {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	lines, logged := observer.New(zap.WarnLevel)
	otherCert, otherKey := others.Client("stranger")
	source, err := certs.NewClient(certs.Files{CA: ours.File, Cert: otherCert, Key: otherKey}, zap.New(lines))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(source.Credentials()))
		if err != nil {
			t.Fatal(err)
		}
		if err := check(t, conn); err != nil || <-callers != "nobody" {
			t.Error(err)
		}
		_ = conn.Close()
	}
	if all := logged.All(); len(all) != 1 || !strings.Contains(all[0].Message, "the authority of --tls-client-cert") {
		t.Errorf("logged %v", all)
	}
}
