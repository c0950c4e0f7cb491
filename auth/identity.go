package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/forerunner-build/forerunner/intake"
)

// An Identity is who calls. It does not change.
type Identity struct {
	// User is his name, never empty.
	User string
	// Groups are those that he is in.
	Groups []string
	// claims are what else is known of him.
	claims map[string][]string
	// trusted is set for calls from the same process: they may do everything.
	trusted bool
}

// Claim returns a claim's values with commas between them; empty if there is none.
// Those of a certificate are cert.cn, cert.o, cert.ou, cert.uri, cert.email and
// cert.dns. Those of a token have the token's names, with dots between the names of
// nested ones.
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

// FromContext returns who makes a call; nil if it is not known or nobody asked.
func FromContext(ctx context.Context) *Identity {
	i, _ := ctx.Value(identityKey{}).(*Identity)
	return i
}

// CallerOf names who makes a call or sends a request as intake does, to count what he has: by his name or, if that is not known,
// by his address. Empty: it is a call from within the process.
func CallerOf(ctx context.Context) string {
	if i := FromContext(ctx); i != nil {
		return intake.UserCaller(i.User)
	}
	return intake.CallerOf(ctx)
}

// newContext adds who makes a call.
func newContext(ctx context.Context, i *Identity) context.Context {
	if i == nil {
		return ctx
	}
	return context.WithValue(ctx, identityKey{}, i)
}

// InProcess is what is known of a connection that comes from the same process: nobody
// else can make it, and who calls over it may do everything.
type InProcess struct{}

// AuthType implements credentials.AuthInfo.
func (InProcess) AuthType() string { return "in-process" }

// ofCertificate returns whom a verified certificate names: by the common name of its
// subject or, without one, by its first URI, e-mail address or DNS name. Groups are
// its organizational units.
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
