package farm

import (
	"context"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
)

func TestListenElsewhereNeedsTLS(t *testing.T) {
	cert, key := certtest.New(t).Server("server")
	for _, test := range []struct {
		name, address string
		ports         serve.Ports
		want          string // part of the error; empty: none
	}{
		{"loopback", "127.0.0.1:0", serve.Ports{}, ""},
		{"localhost", "localhost:0", serve.Ports{}, ""},
		{"all", ":0", serve.Ports{}, "--insecure-listen"},
		{"all of IPv4", "0.0.0.0:0", serve.Ports{}, "--tls-cert"},
		{"a name", "build.example.com:0", serve.Ports{}, "--insecure-listen"},
		{"all with TLS", "0.0.0.0:0", serve.Ports{Cert: cert, Key: key}, ""},
		{"all, as was said", "0.0.0.0:0", serve.Ports{Insecure: true}, ""},
		{"no port", "127.0.0.1", serve.Ports{}, "--listen: address 127.0.0.1: missing port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := test.ports.Listen(t.Context(), "--listen", test.address)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err == nil {
				_ = l.Close()
			}
		})
	}
	for want, p := range map[string]serve.Ports{
		"--tls-client-ca: there is no TLS": {ClientCA: cert}, "its key are needed": {Cert: cert}, "no such file": {Cert: "x", Key: "y"},
	} {
		if _, err := p.Open(zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

// startScheduler runs one until the test ends and returns its address.
func startScheduler(t *testing.T, s *Scheduler) string {
	t.Helper()
	s.Data, s.Storage.CacheSize, s.Logger = t.TempDir(), "10M", zap.NewNop()
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	ctx, stop := context.WithCancel(context.Background())
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, context.Background(), func(a string) error { address <- s.Scheme() + a; return nil })
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
func capabilities(t *testing.T, c *dial.Client, target string) error {
	t.Helper()
	conn, err := c.Dial(target)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = repb.NewCapabilitiesClient(conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{}, grpc.WaitForReady(c.Connect != nil))
	return err
}

func TestSchedulerWithTLS(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("server")
	s := &Scheduler{Ports: serve.Ports{Cert: cert, Key: key}}
	w := &Worker{}
	s.Join(&Started{w: w}, Together{})
	address := startScheduler(t, s)
	if err := capabilities(t, &dial.Client{CA: a.File}, address); err != nil {
		t.Error(err)
	}
	if err := capabilities(t, &dial.Client{}, address); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without its authority: %v", err)
	}
	if err := capabilities(t, &dial.Client{}, strings.TrimPrefix(address, "grpcs://")); err == nil {
		t.Error("without TLS: no error")
	}
	// A worker of the same process needs no certificate.
	if err := capabilities(t, &w.Client, w.Scheduler); err != nil {
		t.Errorf("within the process: %v", err)
	}
	w.Client.Connect = nil
	if err := capabilities(t, &w.Client, "grpc://"+strings.TrimPrefix(address, "grpcs://")); err == nil {
		t.Error("from elsewhere, as if within the process: no error")
	}
}
