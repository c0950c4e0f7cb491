package certs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/auth/certtest"
)

// TestFailedHandshakes: of each failed handshake the log of the server has the address of the other
// side, the reason, and what to do there.
func TestFailedHandshakes(t *testing.T) {
	ours, others := certtest.New(t), certtest.New(t)
	cert, key := ours.Server("server")
	elsewhereCert, elsewhereKey := ours.Issue("elsewhere", &x509.Certificate{DNSNames: []string{"elsewhere"}})
	issued := func(a *certtest.Authority, name string, c *x509.Certificate) certs.Files {
		cert, key := a.Issue(name, c)
		return certs.Files{CA: ours.File, Cert: cert, Key: key}
	}
	for name, test := range map[string]struct {
		server, client certs.Files
		text           string // sent without TLS; empty: a handshake
		want           string // empty: no line
	}{
		"its authority is another":       {client: issued(others, "stranger", &x509.Certificate{}), want: "not in --tls-client-ca"},
		"it has expired":                 {client: issued(ours, "old", &x509.Certificate{NotAfter: time.Now().Add(-time.Hour)}), want: "has expired"},
		"it is not valid yet":            {client: issued(ours, "new", &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}), want: "not valid yet"},
		"it is for servers":              {client: issued(ours, "other", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), want: "not for clients"},
		"the server's authority":         {client: certs.Files{CA: others.File}, want: "refuses --tls-cert"},
		"the server's name":              {server: certs.Files{Cert: elsewhereCert, Key: elsewhereKey}, client: certs.Files{CA: ours.File}, want: "refuses --tls-cert"},
		"no TLS":                         {text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: "use grpcs://"},
		"it asks whether a port is open": {text: " "},
	} {
		t.Run(name, func(t *testing.T) {
			if test.server.Cert == "" {
				test.server = certs.Files{Cert: cert, Key: key}
			}
			test.server.CA = ours.File
			lines, logged := observer.New(zap.WarnLevel)
			peer, ended := refuse(t, test.server, zap.New(lines), test.client, test.text)
			all := logged.All()
			if ended == nil || len(all) != min(len(test.want), 1) {
				t.Fatalf("%v, logged %v", ended, all)
			}
			if test.want == "" {
				return
			}
			fields := all[0].ContextMap()
			if remedy, _ := fields["remedy"].(string); !strings.Contains(remedy, test.want) || fields["peer"] != peer {
				t.Errorf("logged %v of %s, want %q", fields, peer, test.want)
			}
		})
	}
}

// refuse has a server refuse a client, and returns its error and the client's address.
func refuse(t *testing.T, server certs.Files, log *zap.Logger, client certs.Files, text string) (peer string, failed error) {
	t.Helper()
	serving, err := certs.NewServer(server, log)
	if err != nil {
		t.Fatal(err)
	}
	calling, err := certs.NewClient(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	near, far := connected(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if text != "" {
			_, _ = near.Write([]byte(text)) // the server says how it went
			_ = near.Close()
			return
		}
		conn, _, err := calling.Credentials().ClientHandshake(context.Background(), "localhost", near)
		if err == nil { // in TLS 1.3 it ends before the server has seen the certificate
			_, _ = conn.Read(make([]byte, 1))
		}
	}()
	_, _, failed = serving.Credentials().ServerHandshake(far)
	_ = far.Close()
	<-done
	return near.LocalAddr().String(), failed
}

// connected returns both ends of a connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err == nil {
		far, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// TestManyFailedHandshakes: a flood of failed handshakes is a line a minute, and hides no others.
func TestManyFailedHandshakes(t *testing.T) {
	authority := certtest.New(t)
	cert, key := authority.Server("server")
	synctest.Test(t, func(t *testing.T) {
		lines, logged := observer.New(zap.WarnLevel)
		source, err := certs.NewServer(certs.Files{Cert: cert, Key: key}, zap.New(lines))
		if err != nil {
			t.Fatal(err)
		}
		plain := tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}
		old := tls.AlertError(70) // protocol version
		for _, step := range []struct {
			wait  time.Duration
			err   error
			times int
			lines int
			more  int64 // in the last line
		}{
			{0, plain, 1000, 1, 0},
			{time.Second, old, 2, 1, 0},
			{58 * time.Second, plain, 1, 0, 0},
			{time.Second, plain, 1, 1, 1000},
			{time.Minute, plain, 1, 1, 0},
		} {
			time.Sleep(step.wait)
			for range step.times {
				source.Refused("10.0.0.1:1", step.err)
			}
			all := logged.TakeAll()
			if len(all) != step.lines {
				t.Fatalf("%+v: %v", step, all)
			}
			if len(all) > 0 && all[0].ContextMap()["more_before"] != step.more {
				t.Errorf("%+v: %v", step, all[0].ContextMap())
			}
		}
	})
}
