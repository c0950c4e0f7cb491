package farm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/auth/certtest"
)

func TestGRPCAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"grpc://127.0.0.1:8980":    "[127.0.0.1:8980] false",
		"127.0.0.1:8980":           "[127.0.0.1:8980] false",
		"grpcs://127.0.0.1:8980":   "[127.0.0.1:8980] true",
		"grpcs://a:1,b:2":          "[a:1 b:2] true",
		"a:1, [::1]:2":             "[a:1 [::1]:2] false",
		"grpcs://a:1, grpcs://b:2": "[a:1 b:2] true",
	} {
		addresses, encrypted, err := grpcAddresses(in)
		if got := fmt.Sprint(addresses, encrypted); err != nil || got != want {
			t.Errorf("grpcAddresses(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "grpc://", "https://h:1", "grpcs://", "host", "a:1,", "grpcs://a:1,grpc://b:2"} {
		if got, _, err := grpcAddresses(in); err == nil {
			t.Errorf("grpcAddresses(%q) = %q, want an error", in, got)
		}
	}
}

// TestTokensAreNotShown checks that a token leaves the machine encrypted or not at all.
func TestTokensAreNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("abc\n")
	for target, want := range map[string]string{
		"grpc://10.0.0.1:8980": "in the clear", "storage:80": "in the clear", "grpcs://10.0.0.1:8980": "",
		"grpc://127.0.0.1:8980": "", "[::1]:80": "", "localhost:80,10.0.0.1:80": "in the clear",
	} {
		conn, err := (&Client{Token: file}).Dial(target)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	write("two words")
	if _, err := (&Client{Token: file}).Dial("grpcs://h:1"); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("two words: %v", err)
	}
}

func TestListenElsewhereNeedsTLS(t *testing.T) {
	cert, key := certtest.New(t).Server("server")
	for _, test := range []struct {
		name, address string
		ports         Ports
		want          string // part of the error; empty: none
	}{
		{"loopback", "127.0.0.1:0", Ports{}, ""},
		{"localhost", "localhost:0", Ports{}, ""},
		{"all", ":0", Ports{}, "--insecure-listen"},
		{"all of IPv4", "0.0.0.0:0", Ports{}, "--tls-cert"},
		{"a name", "build.example.com:0", Ports{}, "--insecure-listen"},
		{"all with TLS", "0.0.0.0:0", Ports{Cert: cert, Key: key}, ""},
		{"all, as was said", "0.0.0.0:0", Ports{Insecure: true}, ""},
		{"no port", "127.0.0.1", Ports{}, "--listen: address 127.0.0.1: missing port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := test.ports.listen(t.Context(), "--listen", test.address)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err == nil {
				_ = l.Close()
			}
		})
	}
	for want, p := range map[string]Ports{
		"--tls-client-ca: there is no TLS": {ClientCA: cert}, "its key are needed": {Cert: cert}, "no such file": {Cert: "x", Key: "y"},
	} {
		if _, err := p.open(zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

// startScheduler runs one until the test ends and returns its address.
func startScheduler(t *testing.T, s *Scheduler) string {
	t.Helper()
	s.Data, s.CacheSize, s.Logger = t.TempDir(), "10M", zap.NewNop()
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, func(a string) error { address <- s.Scheme() + a; return nil })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("scheduler: %v", err)
		}
	})
	select {
	case a := <-address:
		return a
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return ""
}

// capabilities makes a call.
func capabilities(t *testing.T, c *Client, target string) error {
	t.Helper()
	conn, err := c.Dial(target)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = repb.NewCapabilitiesClient(conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{}, grpc.WaitForReady(c.connect != nil))
	return err
}

func TestSchedulerWithTLS(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("server")
	s := &Scheduler{Ports: Ports{Cert: cert, Key: key}}
	w := &Worker{}
	s.Join(w)
	address := startScheduler(t, s)
	if err := capabilities(t, &Client{CA: a.File}, address); err != nil {
		t.Error(err)
	}
	if err := capabilities(t, &Client{}, address); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without its authority: %v", err)
	}
	if err := capabilities(t, &Client{}, strings.TrimPrefix(address, "grpcs://")); err == nil {
		t.Error("without TLS: no error")
	}
	// A worker of the same process needs no certificate.
	if err := capabilities(t, &w.Client, w.Scheduler); err != nil {
		t.Errorf("within the process: %v", err)
	}
	w.Client.connect = nil
	if err := capabilities(t, &w.Client, "grpc://"+strings.TrimPrefix(address, "grpcs://")); err == nil {
		t.Error("from elsewhere, as if within the process: no error")
	}
}
