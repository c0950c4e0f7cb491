package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/forerunner-build/forerunner/intake"
)

// An Identity is an authenticated caller. It is immutable.
type Identity struct {
	// User is the caller's name, never empty.
	User string
	// Groups are the caller's groups.
	Groups []string
	// claims are further facts about the caller.
	claims map[string][]string
	// trusted is set for calls from the same process: they may do everything.
	trusted bool
}

// Claim returns a claim's values, separated by commas; empty if there is none. The claims of a
// certificate are cert.cn, cert.o, cert.ou, cert.uri, cert.email and cert.dns. Those of a token
// have the token's names, with dots between the names of nested ones.
func (i *Identity) Claim(name string) string {
	if i == nil {
		return ""
	}
	return strings.Join(i.claims[name], ",")
}

// String names the caller in errors.
func (i *Identity) String() string {
	switch {
	case i == nil:
		return "who shows neither certificate nor token"
	case len(i.Groups) == 0:
		return i.User
	}
	return i.User + " (" + strings.Join(i.Groups, ", ") + ")"
}

// certPrefix begins the claims of certificates, and of no token.
const certPrefix = "cert."

type identityKey struct{}

// FromContext returns the caller; nil if unauthenticated.
func FromContext(ctx context.Context) *Identity {
	i, _ := ctx.Value(identityKey{}).(*Identity)
	return i
}

// CallerOf names the caller of a call or request for intake's limits: by its name or, without one,
// by its address. It is empty for a call from within the process.
func CallerOf(ctx context.Context) string {
	if i := FromContext(ctx); i != nil {
		return intake.UserCaller(i.User)
	}
	return intake.CallerOf(ctx)
}

// newContext adds the caller.
func newContext(ctx context.Context, i *Identity) context.Context {
	if i == nil {
		return ctx
	}
	return context.WithValue(ctx, identityKey{}, i)
}

// InProcess marks a connection from the same process: no other program can make it, and calls over
// it have all rights.
type InProcess struct{}

// AuthType implements credentials.AuthInfo.
func (InProcess) AuthType() string { return "in-process" }

// ofCertificate returns the identity in a verified certificate: the common name of its subject or,
// without one, its first URI, e-mail address or DNS name. Groups are its organizational units.
func ofCertificate(c *x509.Certificate) (*Identity, error) {
	var uris []string
	for _, u := range c.URIs {
		uris = append(uris, u.String())
	}
	i := &Identity{Groups: c.Subject.OrganizationalUnit, claims: map[string][]string{
		"cert.o": c.Subject.Organization, "cert.ou": c.Subject.OrganizationalUnit,
		"cert.uri": uris, "cert.email": c.EmailAddresses, "cert.dns": c.DNSNames,
	}}
	if cn := c.Subject.CommonName; cn != "" {
		i.claims["cert.cn"] = []string{cn}
	}
	for _, name := range []string{"cert.cn", "cert.uri", "cert.email", "cert.dns"} {
		if values := i.claims[name]; len(values) > 0 {
			i.User = values[0]
			return i, nil
		}
	}
	return nil, errors.New("the certificate has no name: no common name, URI, e-mail address or DNS name")
}
