package login

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/oauth2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/reload"
)

const (
	// fresh is how long an issuer's configuration is used without another fetch.
	fresh = time.Hour
	// pause is between two tries to learn it.
	pause = 5 * time.Second
	// askTimeout limits a request to an issuer, answerBytes its answer.
	askTimeout  = 10 * time.Second
	answerBytes = 1 << 20
)

// An issuer authenticates users.
type issuer struct {
	Issuer
	secret *reload.Value[string] // nil: none
	back   string                // where people return to
	client *http.Client
	log    *zap.Logger
	known  atomic.Pointer[provider]
	// fetching has room for one; the goroutine that filled it owns tried and fault, of the last
	// try.
	fetching chan struct{}
	tried    time.Time
	fault    error
}

// A provider is an issuer's configuration.
type provider struct {
	*oidc.Provider
	issuer *issuer
	style  oauth2.AuthStyle
	named  bool // its answers to log-ins with its name (RFC 9207)
	at     time.Time
}

func newIssuer(s Issuer, back string, log *zap.Logger) (*issuer, error) {
	i := &issuer{
		Issuer: s, back: back, log: seldom(log), fetching: make(chan struct{}, 1),
		client: &http.Client{Transport: careful{http.DefaultTransport}, Timeout: askTimeout},
	}
	i.Leeway = cmp.Or(i.Leeway, auth.DefaultLeeway)
	if s.SecretFile == "" {
		return i, nil
	}
	var err error
	i.secret, err = reload.New(log, func(contents [][]byte) (string, error) {
		if secret := bytes.TrimSpace(contents[0]); len(secret) > 0 {
			return string(secret), nil
		}
		return "", errors.New("the file is empty")
	}, s.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("client_secret_file: %w", err)
	}
	return i, nil
}

// careful makes requests only where no one on the network path can change the answer, and limits
// its size.
type careful struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c careful) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := auth.CheckURL(r.URL.String()); err != nil {
		return nil, err
	}
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, answerBytes), resp.Body}
	}
	return resp, err
}

// provider returns the issuer's configuration, fetched now if it is unknown. Errors are gRPC
// statuses.
func (i *issuer) provider(ctx context.Context) (*provider, error) {
	p := i.known.Load()
	if p != nil && time.Since(p.at) < fresh {
		return p, nil
	}
	select {
	case i.fetching <- struct{}{}:
		defer func() { <-i.fetching }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if i.known.Load() == p && time.Since(i.tried) >= pause {
		i.fetch(ctx)
	}
	if p = i.known.Load(); p != nil {
		return p, nil
	}
	return nil, status.Errorf(codes.Unavailable, "%s cannot be reached, so nobody can log in with it now: try again in a moment", i.title())
}

// fetch asks the issuer for all waiting log-ins, even if ctx ends.
func (i *issuer) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), i.client), askTimeout)
	defer cancel()
	var found *oidc.Provider
	found, i.fault = oidc.NewProvider(ctx, i.Name)
	i.tried = time.Now()
	var says struct {
		AuthURL string   `json:"authorization_endpoint"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Named   bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if i.fault == nil {
		i.fault = errors.Join(found.Claims(&says), auth.CheckURL(says.AuthURL), auth.CheckURL(found.Endpoint().TokenURL))
	}
	if i.fault != nil {
		i.log.Warn("cannot fetch the configuration of an issuer; users cannot log in with it", zap.String("issuer", i.Name), zap.Error(i.fault))
		return
	}
	style := oauth2.AuthStyleInHeader // by default (OpenID Connect Discovery, section 3)
	if i.secret == nil || len(says.Methods) > 0 && !slices.Contains(says.Methods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	i.known.Store(&provider{found, i, style, says.Named, i.tried})
}

// oauth returns the OAuth client of these pages at the issuer.
func (p *provider) oauth(secret string) *oauth2.Config {
	end := p.Endpoint()
	end.AuthStyle = p.style
	return &oauth2.Config{ClientID: p.issuer.ClientID, ClientSecret: secret, Endpoint: end, RedirectURL: p.issuer.back, Scopes: p.issuer.scopes()}
}

// check returns an error for a response to a log-in that is not from this issuer (RFC 9207): from
// is the issuer in it.
func (i *issuer) check(ctx context.Context, from string) error {
	if from != "" {
		if from != i.Name {
			return errAgain
		}
		return nil
	}
	p, err := i.provider(ctx)
	if err == nil && p.named {
		err = status.Errorf(codes.PermissionDenied, "%s sends its name with each answer, and this one has none: log in again", i.title())
	}
	return err
}

// A proof shows that the browser that ends a log-in has begun it.
type proof struct{ nonce, verifier string }

// identify returns the user, by the code that the issuer gave the browser. Errors are gRPC
// statuses.
func (i *issuer) identify(ctx context.Context, code string, by proof) (*auth.Identity, error) {
	p, err := i.provider(ctx)
	if err != nil {
		return nil, err
	}
	secret := ""
	if i.secret != nil {
		secret = i.secret.Get()
	}
	ctx = oidc.ClientContext(ctx, i.client)
	token, err := p.oauth(secret).Exchange(ctx, code, oauth2.VerifierOption(by.verifier))
	if err != nil {
		return nil, i.explain(err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, status.Errorf(codes.Unavailable, "%s did not say who you are: it sent no ID token", i.title())
	}
	verified, err := p.Verifier(&oidc.Config{
		ClientID: i.ClientID, Now: func() time.Time { return time.Now().Add(-i.Leeway) },
	}).Verify(ctx, raw)
	if err != nil {
		return nil, i.explainToken(ctx, err)
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(by.nonce)) != 1 {
		return nil, status.Errorf(codes.PermissionDenied, "the ID token of %s is of another log-in: log in again", i.title())
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "the ID token of %s is not good: %v", i.title(), err)
	}
	// A token may name several audiences, and then says which one it was made for (OpenID Connect
	// Core 1.0, 3.1.3.7).
	if to, said := claims["azp"]; said && to != i.ClientID {
		return nil, status.Errorf(codes.PermissionDenied, "the ID token of %s was made for another client, %q: log in again", i.title(), to)
	}
	return i.identity(claims)
}

// identity returns the identity in the claims of an ID token.
func (i *issuer) identity(claims map[string]any) (*auth.Identity, error) {
	if good, said := claims["email_verified"]; said && i.claims().UserClaim == emailClaim && good != true && good != "true" {
		return nil, status.Errorf(codes.PermissionDenied, "%s has not verified your e-mail address, which is your name here", i.title())
	}
	who, err := i.claims().Identify(claims)
	if err != nil {
		return nil, status.Errorf(codes.PermissionDenied,
			"%s did not say who you are: in the ID token, %v (user_claim and scopes below login in the scheduler's --config define the request)", i.title(), err)
	}
	return who, nil
}

// noKeys is the beginning of go-oidc's errors when the keys of the issuer cannot be fetched. They
// wrap nothing.
const noKeys = "failed to verify signature: fetching keys "

// explainToken says why an ID token is not accepted: it is invalid, or there are no keys to check
// it with.
func (i *issuer) explainToken(ctx context.Context, err error) error {
	if ctx.Err() == nil && !strings.HasPrefix(err.Error(), noKeys) {
		return status.Errorf(codes.PermissionDenied, "the ID token of %s is not good: %v", i.title(), err)
	}
	i.log.Warn("cannot fetch the keys of an issuer; users cannot log in with it", zap.String("issuer", i.Name), zap.Error(err))
	return status.Errorf(codes.Unavailable, "%s does not answer: try again in a moment", i.title())
}

// explain explains an issuer's rejection of a code; the log has its text.
func (i *issuer) explain(err error) error {
	i.log.Warn("an issuer rejects the code of a log-in to the pages", zap.String("issuer", i.Name), zap.Error(err))
	refused := &oauth2.RetrieveError{}
	if !errors.As(err, &refused) {
		return status.Errorf(codes.Unavailable, "%s does not answer: try again in a moment", i.title())
	}
	switch refused.ErrorCode {
	case "invalid_grant":
		return status.Errorf(codes.FailedPrecondition, "%s rejects this log-in as used or expired: log in again", i.title())
	case "invalid_client", "unauthorized_client":
		return status.Errorf(codes.Unavailable, "%s does not know these pages: client_id or client_secret_file of the scheduler is wrong", i.title())
	}
	return status.Errorf(codes.Unavailable, "%s did not log you in: %s", i.title(), cmp.Or(refused.ErrorCode, refused.Response.Status))
}

// seldom returns a logger that logs each message at most once a second. Anyone who can reach the
// pages can make log-ins fail many times a second.
func seldom(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)
	}))
}
