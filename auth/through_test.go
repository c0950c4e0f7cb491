package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// strictGuard returns a Guard that knows alice, who may execute for x, and bob, who may read.
func strictGuard(t *testing.T) *Guard {
	t.Helper()
	g, err := New(Options{Certificates: true, Rules: []Rule{
		{Users: []string{"alice"}, Instances: []string{"x"}, May: []Right{Execute}},
		{Users: []string{"bob"}, Instances: []string{"x"}, May: []Right{Read, Write}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// shownBy is the state of a connection whose client has shown the certificate of a user, which was
// verified.
func shownBy(user string) tls.ConnectionState {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: user}}
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
}

// over is the context of a call over a connection in a state.
func over(t *testing.T, state tls.ConnectionState) context.Context {
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

// unary makes a call through a Guard.
func (g *Guard) unary(ctx context.Context, method string, req proto.Message) codes.Code {
	_, err := g.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return status.Code(err)
}

// TestWhoIsLetThrough: a known caller without any right is refused when its headers arrive; a
// caller that lacks the right for a method is refused at the call. An unverified certificate
// identifies nobody.
func TestWhoIsLetThrough(t *testing.T) {
	g := strictGuard(t)
	unverified := tls.ConnectionState{PeerCertificates: shownBy("alice").PeerCertificates}
	const capabilities, operation = repb.Capabilities_GetCapabilities_FullMethodName, longrunningpb.Operations_GetOperation_FullMethodName
	for name, test := range map[string]struct {
		state       tls.ConnectionState
		look, calls codes.Code
		method      string
		req         proto.Message
	}{
		"alice":                    {shownBy("alice"), codes.OK, codes.OK, capabilities, &repb.GetCapabilitiesRequest{}},
		"who has no right":         {shownBy("eve"), codes.PermissionDenied, codes.PermissionDenied, capabilities, &repb.GetCapabilitiesRequest{}},
		"who shows nothing":        {tls.ConnectionState{}, codes.Unauthenticated, codes.Unauthenticated, capabilities, &repb.GetCapabilitiesRequest{}},
		"unverified":               {unverified, codes.Unauthenticated, codes.Unauthenticated, capabilities, &repb.GetCapabilitiesRequest{}},
		"an operation of somebody": {shownBy("alice"), codes.OK, codes.OK, operation, &longrunningpb.GetOperationRequest{Name: "o"}},
		"an operation, of who may not execute": {
			shownBy("bob"), codes.OK, codes.PermissionDenied, operation, &longrunningpb.GetOperationRequest{Name: "o"},
		},
	} {
		ctx := over(t, test.state)
		if _, err := g.Look(ctx, test.method); status.Code(err) != test.look {
			t.Errorf("%s: %v by headers, want %s", name, err, test.look)
		}
		if _, _, err := g.Admit(ctx, test.method); status.Code(err) != test.look {
			t.Errorf("%s: admitted with %v, want %s", name, err, test.look)
		}
		if got := g.unary(ctx, test.method, test.req); got != test.calls {
			t.Errorf("%s: %s, want %s", name, got, test.calls)
		}
	}
}

// TestFoundOutForOneMethod: a decision for one method, or by another Guard, does not count for this
// one.
func TestFoundOutForOneMethod(t *testing.T) {
	g := strictGuard(t)
	lax, err := New(Options{Certificates: true, Rules: []Rule{{Anyone: true, May: Rights()}}})
	if err != nil {
		t.Fatal(err)
	}
	const execute, health = repb.Execution_Execute_FullMethodName, healthpb.Health_Check_FullMethodName
	nobody := over(t, tls.ConnectionState{})
	free, _, err := g.Admit(nobody, health)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, _, err := lax.Admit(nobody, execute)
	if err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{"another method": free, "another Guard": elsewhere} {
		if got := g.unary(ctx, execute, &repb.ExecuteRequest{InstanceName: "x"}); got != codes.Unauthenticated {
			t.Errorf("after %s: %s", name, got)
		}
		if g.Knows(ctx, execute) {
			t.Errorf("after %s it is known who calls", name)
		}
	}
	if !lax.Knows(elsewhere, execute) || !g.Knows(nobody, health) || !g.Knows(nobody, "/no/Method") {
		t.Error("what is known is not")
	}
}

// TestOpenPages has pages for everyone. They know the name of a user who has logged in.
func TestOpenPages(t *testing.T) {
	var name string
	pages := strictGuard(t).OpenHTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { name = FromContext(r.Context()).name() }))
	for _, user := range []string{"alice", "eve", ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if state := shownBy(user); user != "" {
			r.TLS = &state
		}
		w := httptest.NewRecorder()
		if pages.ServeHTTP(w, r); w.Code != http.StatusOK || name != user {
			t.Errorf("%q is taken for %q: %d", user, name, w.Code)
		}
	}
}

// asked is a stream that brings one request again and again.
type asked struct {
	grpc.ServerStream
	ctx context.Context
}

func (s asked) Context() context.Context { return s.ctx }

func (asked) RecvMsg(m any) error {
	m.(*bytestream.WriteRequest).ResourceName = "y/uploads/0/blobs/0/0"
	return nil
}

// TestRefusedStreams: a stream whose first request is refused has no second one.
func TestRefusedStreams(t *testing.T) {
	err := strictGuard(t).Stream(nil, asked{ctx: over(t, shownBy("bob"))}, &grpc.StreamServerInfo{FullMethod: byteStreamWrite},
		func(_ any, s grpc.ServerStream) error {
			for range 2 {
				if err := s.RecvMsg(&bytestream.WriteRequest{}); status.Code(err) != codes.PermissionDenied {
					t.Errorf("a request for another instance name: %v", err)
				}
			}
			return nil
		})
	if err != nil {
		t.Error(err)
	}
}

// TestWritingStreams: to write what looks like the output of a command takes no less than to write
// anything else.
func TestWritingStreams(t *testing.T) {
	if n, _ := needOf(need{right: Write}, &bytestream.WriteRequest{ResourceName: "streams/operations/o/stdout"}); n.right != Write {
		t.Errorf("it takes %s", n)
	}
	if n, _ := needOf(need{right: Read}, &bytestream.ReadRequest{ResourceName: "streams/operations/o/stdout"}); n.right != Execute {
		t.Errorf("to read it takes %s", n)
	}
}

// TestAllowed asks for a right that a call does not name.
func TestAllowed(t *testing.T) {
	g := strictGuard(t)
	for user, want := range map[string]bool{"alice": true, "bob": false} {
		ctx := context.WithValue(t.Context(), callKey{}, &call{guard: g, who: &Identity{User: user}})
		if Allowed(ctx, Execute, "x") != want || Allowed(ctx, Execute, "y") {
			t.Errorf("%s: %t for x, %t for y", user, Allowed(ctx, Execute, "x"), Allowed(ctx, Execute, "y"))
		}
	}
	if !Allowed(t.Context(), Administer, "x") {
		t.Error("where nobody asks, everybody is allowed everything")
	}
}
