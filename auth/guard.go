package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/intake"
)

// Options configure authentication and authorization.
type Options struct {
	// Certificates is set if TLS verifies client certificates.
	Certificates bool
	// Issuers are the issuers of accepted tokens.
	Issuers []Issuer
	// Rules give rights. Nil: DefaultRules, but only administrators may observe if operations
	// belong to users.
	Rules []Rule
	// Owning defines the owners of operations. Empty: OfInstances.
	Owning Owning
	// LogIn is set if users can log in to the scheduler's pages. Sessions, nil elsewhere, know the
	// logged-in users.
	LogIn    bool
	Sessions Sessions
	// RememberBytes limit the cache of verified tokens; 0: 8 MiB.
	RememberBytes int64
	// Logger logs the actions of administrators, and faults of keys. Nil: no log.
	Logger *zap.Logger
}

// Configured reports whether authentication is configured. If not, no Guard is needed.
func (o Options) Configured() bool {
	return o.names() || o.Rules != nil || o.Owning == OfUsers
}

// names reports whether any caller can be known by name.
func (o Options) names() bool { return o.Certificates || len(o.Issuers) > 0 || o.LogIn }

// A Guard stands before services and lets allowed callers through. It may be used concurrently.
type Guard struct {
	methods map[string]need
	rules   rules
	owning  Owning
	tokens  *tokens // nil: none are taken
	ways    string  // to authenticate
	log     *zap.Logger
	// sessions may be nil; refused answers requests for pages that the caller may not see, nil:
	// with text.
	sessions Sessions
	refused  Refused
}

// errNobodyKnown is the error of options for users without authentication.
var errNobodyKnown = errors.New(
	"no caller can be authenticated: there are neither authorities of clients' certificates (--tls-client-ca) nor issuers of tokens, and users cannot log in")

// New returns a Guard, or an error that names the invalid option.
func New(o Options) (*Guard, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if err := o.Owning.Validate(); err != nil {
		return nil, fmt.Errorf("operations_belong_to: %w", err)
	}
	if o.Owning == OfUsers && !o.names() {
		return nil, fmt.Errorf("operations_belong_to: %s: %w", o.Owning, errNobodyKnown)
	}
	if o.Rules == nil {
		o.Rules = rulesFor(o.Owning)
	}
	g := &Guard{methods: methods(), owning: o.Owning, log: o.Logger, sessions: o.Sessions}
	for i, r := range o.Rules {
		made, err := newRule(r)
		if err == nil && !r.Anyone && !o.names() {
			err = errNobodyKnown
		}
		if err != nil {
			return nil, fmt.Errorf("access rule %d: %w", i+1, err)
		}
		g.rules = append(g.rules, made)
	}
	var ways []string
	if o.Certificates {
		ways = append(ways, "a client certificate (--tls-client-cert and --tls-client-key; in Bazel --tls_client_certificate and "+
			"--tls_client_key) of an authority in the server's --tls-client-ca, as clients send no other one,")
	}
	if len(o.Issuers) > 0 {
		var err error
		if g.tokens, err = newTokens(o.Issuers, cmp.Or(o.RememberBytes, defaultRemembered), o.Logger); err != nil {
			return nil, err
		}
		ways = append(ways, "a token of "+strings.Join(g.tokens.names(), " or ")+
			" in the header \"authorization: Bearer TOKEN\" (--token-file; in Bazel --credential_helper, or "+
			"--remote_header=authorization=\"Bearer TOKEN\")")
	}
	g.ways = strings.TrimSuffix(strings.Join(ways, " or "), ",")
	return g, nil
}

// Check returns an error that names the methods of a server that the Guard does not know, or nil.
func (g *Guard) Check(services map[string]grpc.ServiceInfo) error {
	var unknown []string
	for name, service := range services {
		for _, m := range service.Methods {
			if full := "/" + name + "/" + m.Name; !g.knows(full) {
				unknown = append(unknown, full)
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("no right is assigned to %s: see auth/methods.go", strings.Join(unknown, ", "))
}

func (g *Guard) knows(method string) bool {
	_, ok := g.methods[method]
	return ok
}

// Unary intercepts unary calls.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c, err := g.begun(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	if c.need.right == Administer {
		g.log.Info("an administrator calls", zap.Stringer("user", c.who), zap.String("method", info.FullMethod), zap.Any("request", req))
	}
	resp, err := handler(newContext(context.WithValue(ctx, callKey{}, c), c.who), req)
	if capabilities, ok := resp.(*repb.ServerCapabilities); ok && err == nil {
		return c.adapt(capabilities, req.(*repb.GetCapabilitiesRequest).GetInstanceName()), nil
	}
	return resp, err
}

// Stream intercepts streams. It reads their first message, which has the request in each of our
// services.
func (g *Guard) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c, err := g.begun(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	ctx := newContext(context.WithValue(stream.Context(), callKey{}, c), c.who)
	return handler(srv, &guardedStream{ServerStream: stream, ctx: ctx, call: c})
}

type guardedStream struct {
	grpc.ServerStream
	ctx  context.Context
	call *call // nil once it has been authorized
}

// Context implements grpc.ServerStream.
func (s *guardedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.call == nil {
		return err
	}
	err := s.call.authorize(m)
	if err == nil {
		s.call = nil
	}
	return err
}

// A call is one to be admitted.
type call struct {
	guard  *Guard
	method string
	need   need
	who    *Identity
}

// call authenticates a call; its request is checked later.
func (g *Guard) call(ctx context.Context, method string) (*call, error) {
	n, ok := g.methods[method]
	if !ok {
		return nil, status.Errorf(codes.PermissionDenied, "no rule covers the method %s", method)
	}
	c := &call{guard: g, method: method, need: n}
	if n.free {
		return c, nil
	}
	var err error
	if c.who, err = g.caller(ctx); err != nil {
		return nil, err
	}
	if !g.rules.knows(c.who) {
		return nil, g.refuse(c.who, "call "+method, "any right")
	}
	return c, nil
}

type callKey struct{}

// Look refuses a call without certificate and token, by its headers alone. It does not block. Its
// result is for Admit.
func (g *Guard) Look(ctx context.Context, method string) (context.Context, error) {
	n, ok := g.methods[method]
	if !ok || n.free {
		return ctx, nil // an unknown method has its own error
	}
	if raw, ok := g.tokenOf(intake.Header(ctx, "authorization")); ok && g.tokens.remembered(raw) == nil {
		return ctx, nil // to verify it may take calls
	}
	c, err := g.call(ctx, method)
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, callKey{}, c), nil
}

// Knows reports whether Admit will not block for a call that Look has seen.
func (g *Guard) Knows(ctx context.Context, method string) bool {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.guard == g && c.method == method {
		return true
	}
	n, ok := g.methods[method]
	return !ok || n.free
}

// Admit authenticates a call before its request is read. It may block, for the keys of tokens. The
// identity is nil without certificate and token, and for methods that need no authentication. The
// returned context is for Unary and Stream.
func (g *Guard) Admit(ctx context.Context, method string) (context.Context, *Identity, error) {
	c, err := g.begun(ctx, method)
	if err != nil {
		return ctx, nil, err
	}
	return context.WithValue(ctx, callKey{}, c), c.who, nil
}

// begun returns the call that Look or Admit have found out about.
func (g *Guard) begun(ctx context.Context, method string) (*call, error) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && c.guard == g && c.method == method {
		return c, nil
	}
	return g.call(ctx, method)
}

// Trusted reports whether i stands for this process itself.
func (i *Identity) Trusted() bool { return i != nil && i.trusted }

// caller returns the caller, nil without certificate and token. If there is one it must be valid.
func (g *Guard) caller(ctx context.Context) (*Identity, error) {
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		known := p.AuthInfo
		if w, ok := known.(interface{ Inner() credentials.AuthInfo }); ok {
			known = w.Inner()
		}
		switch info := known.(type) {
		case InProcess:
			return &Identity{User: "this process", trusted: true}, nil
		case credentials.TLSInfo:
			state = &info.State
		}
	}
	return g.identify(ctx, state, intake.Header(ctx, "authorization"))
}

// identify returns the identity in a token or, without one, in a certificate.
func (g *Guard) identify(ctx context.Context, state *tls.ConnectionState, headers []string) (*Identity, error) {
	if raw, ok := g.tokenOf(headers); ok {
		return g.tokens.identify(ctx, raw)
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil, nil
	}
	who, err := ofCertificate(state.VerifiedChains[0][0])
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return who, nil
}

// tokenOf returns the token in headers, if tokens are taken.
func (g *Guard) tokenOf(headers []string) (raw string, ok bool) {
	if g.tokens == nil {
		return "", false
	}
	for _, h := range headers {
		if scheme, token, ok := strings.Cut(h, " "); ok && strings.EqualFold(scheme, "bearer") {
			return strings.TrimSpace(token), true
		}
	}
	return "", false
}

// authorize returns an error unless the caller may send the message.
func (c *call) authorize(message any) error {
	n, name := needOf(c.need, message)
	if n.free || c.guard.rules.satisfy(n, c.who, name) {
		return nil
	}
	what := fmt.Sprintf("call %s", c.method)
	if n.scope == one {
		if err := instance.Check(name); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		what += fmt.Sprintf(" for instance name %q", name)
	}
	return c.guard.refuse(c.who, what, n.String())
}

// refuse returns the error for a caller without the right; an unauthenticated one learns how to
// authenticate.
func (g *Guard) refuse(who *Identity, what, right string) error {
	if who == nil && g.ways != "" {
		return status.Errorf(codes.Unauthenticated, "%s may not %s: present %s", who, what, g.ways)
	}
	return status.Errorf(codes.PermissionDenied,
		"%s may not %s: no rule below access in the file of the scheduler's --config gives %s", who, what, right)
}

// adapt reduces the server's capabilities to those of the caller, so that a client does not try
// calls that it may not make.
func (c *call) adapt(all *repb.ServerCapabilities, instance string) *repb.ServerCapabilities {
	own := proto.CloneOf(all)
	if u := own.GetCacheCapabilities().GetActionCacheUpdateCapabilities(); u != nil {
		u.UpdateEnabled = u.UpdateEnabled && c.guard.rules.allow(c.who, WriteResults, one, instance)
	}
	if e := own.GetExecutionCapabilities(); e != nil {
		e.ExecEnabled = e.ExecEnabled && c.guard.rules.allow(c.who, Execute, one, instance)
	}
	return own
}
