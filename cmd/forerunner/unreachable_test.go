package main

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/freeport"
)

// TestUnreachable calls what is no scheduler, and is told what to do.
func TestUnreachable(t *testing.T) {
	pages := httptest.NewServer(http.NotFoundHandler())
	defer pages.Close()
	encrypted := httptest.NewTLSServer(http.NotFoundHandler())
	defer encrypted.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	go func() { _ = s.Serve(plain) }()
	defer s.Stop()
	gone := freeport.Address(t)
	for remote, want := range map[string]string{
		pages.Listener.Addr().String():     "that port has pages",
		"grpcs://" + plain.Addr().String(): "use grpc://",
		gone:                               "connection refused; start \"forerunner up\" there",
		"name.invalid:1":                   "name.invalid",
		"grpcs://" + encrypted.Listener.Addr().String(): "certificate",
	} {
		conn, err := (&dial.Client{}).Dial(remote)
		if err != nil {
			t.Fatal(err)
		}
		err = explained(greet(t.Context(), conn), remote)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "desc =") {
			t.Errorf("%s: %v, want %q", remote, err, want)
		}
		_ = conn.Close()
	}
}

// TestCertificates calls a scheduler, or is one, with certificates that the other side does not
// accept. The error says whose certificate it is, and what is wrong with it.
func TestCertificates(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	past, future, local := time.Now().Add(-time.Hour), time.Now().Add(time.Hour), []net.IP{net.IPv4(127, 0, 0, 1)}
	of := func(cert, key string) certs.Files { return certs.Files{CA: ours.File, Cert: cert, Key: key} }
	client := func(cert, key string) dial.Client { return dial.Client{CA: ours.File, Cert: cert, Key: key} }
	good := of(ours.Server("server"))
	for name, test := range map[string]struct {
		server certs.Files
		client dial.Client
		want   string
	}{
		"expired client": {
			good, client(ours.Issue("old", &x509.Certificate{NotAfter: past})),
			"it refuses the certificate of --tls-client-cert, which has expired",
		},
		"client of tomorrow": {
			good, client(ours.Issue("new", &x509.Certificate{NotBefore: future, NotAfter: future.Add(time.Hour)})),
			"it refuses the certificate of --tls-client-cert, which has expired or is not valid yet",
		},
		"client of another authority": {good, client(others.Client("stranger")), "the authority is none of its --tls-client-ca"},
		"a server's certificate": {
			good, client(ours.Issue("other", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})),
			"perhaps that is not for clients",
		},
		"expired server": {
			of(ours.Issue("late", &x509.Certificate{NotAfter: past, IPAddresses: local})), client(ours.Client("alice")),
			"its certificate has expired or is not valid yet",
		},
		"server of another authority": {
			certs.Files{CA: ours.File}, client(ours.Client("alice")), "give that authority's certificate with --tls-ca",
		},
		"server of another name": {
			of(ours.Issue("far", &x509.Certificate{DNSNames: []string{"far.example.com"}})), client(ours.Client("alice")), "its certificate has other names than --remote",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.server.Cert == "" {
				test.server.Cert, test.server.Key = others.Server("server")
			}
			source, err := certs.NewServer(test.server, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer(grpc.Creds(source.Credentials()))
			go func() { _ = s.Serve(l) }()
			defer s.Stop()
			remote := "grpcs://" + l.Addr().String()
			for range 20 { // how it is learned depends on which side is quicker
				conn, err := test.client.Dial(remote)
				if err != nil {
					t.Fatal(err)
				}
				err = explained(greet(t.Context(), conn), remote)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				_ = conn.Close()
			}
		})
	}
}
