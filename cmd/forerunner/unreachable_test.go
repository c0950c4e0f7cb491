package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/farm/dial"
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
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for remote, want := range map[string]string{
		pages.Listener.Addr().String():                  "that port has pages",
		"grpcs://" + plain.Addr().String():              "use grpc://",
		gone.Addr().String():                            "connection refused; start \"forerunner up\" there",
		"name.invalid:1":                                "name.invalid",
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
