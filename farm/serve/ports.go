package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/settings"
)

// Ports define the protection of a program's ports.
type Ports struct {
	// Cert, Key and ClientCA are files; see certs.Files. Without Cert there is no TLS.
	Cert     string `flag:"tls-cert" group:"Ports" unit:"FILE" otherwise:"none: no TLS" doc:"File with the certificate of all ports, PEM; the program reloads this and all other --tls-... files when they change"`
	Key      string `flag:"tls-key" unit:"FILE" otherwise:"none" doc:"File with the key of --tls-cert, PEM"`
	ClientCA string `flag:"tls-client-ca" unit:"FILE" otherwise:"none" doc:"File with the authorities of client certificates, PEM; callers then need a certificate or a token"`
	// Insecure allows reachable ports without TLS.
	Insecure bool `flag:"insecure-listen" doc:"Allows ports without TLS that are not on loopback; anyone on the network can then read and change all traffic"`
}

// Files returns the files in the flags.
func (p *Ports) Files() []string { return []string{p.Cert, p.Key, p.ClientCA} }

// A Protection is the protection of a program's ports; source and Guard may be nil.
type Protection struct {
	source *certs.Source
	Guard  *auth.Guard
	// OwnUser restricts ports on loopback to the user of this process and root, because callers can
	// act as that user.
	OwnUser bool
}

// Protect makes the protection of a program with access rules. Its errors are those of settings.
func (p *Ports) Protect(o auth.Options) (made Protection, err error) {
	if made.source, err = p.Open(o.Logger); err != nil {
		return made, err
	}
	o.Certificates = p.ClientCA != ""
	if !o.Configured() {
		return made, nil
	}
	if made.Guard, err = auth.New(o); err != nil {
		return made, settings.Wrong("--config: %w", err)
	}
	return made, nil
}

// encrypt returns l with TLS, if there is any.
func (p Protection) encrypt(l net.Listener) net.Listener {
	if p.source == nil {
		return l
	}
	return tls.NewListener(l, p.source.PagesConfig())
}

// handshakeFailed logs a failed TLS handshake of a port of pages.
func (p Protection) handshakeFailed(peer string, err error) {
	if p.source != nil {
		p.source.Refused(peer, err)
	}
}

// pages returns pages as they are for those with a right.
func (p Protection) pages(right auth.Right, pages http.Handler) http.Handler {
	switch {
	case p.OwnUser:
		return ownOnly(pages)
	case p.Guard == nil:
		return pages
	}
	return p.Guard.HTTP(right, pages)
}

// credentials returns those of a gRPC server.
func (p Protection) credentials() credentials.TransportCredentials {
	if p.source != nil {
		return orInProcess{p.source.Credentials(), p.OwnUser}
	}
	return orInProcess{insecure.NewCredentials(), p.OwnUser}
}

// Open reads the files; the result is nil without TLS.
func (p *Ports) Open(log *zap.Logger) (*certs.Source, error) {
	if p.Cert == "" && p.Key == "" {
		if p.ClientCA != "" {
			return nil, settings.Wrong("--tls-client-ca: there is no TLS without --tls-cert and --tls-key")
		}
		return nil, nil
	}
	source, err := certs.NewServer(certs.Files{Cert: p.Cert, Key: p.Key, CA: p.ClientCA}, log)
	if err != nil {
		return nil, settings.Wrong("--tls-cert, --tls-key, --tls-client-ca: %w", err)
	}
	return source, nil
}

// Check returns an error unless a program may listen on the address of a flag.
func (p *Ports) Check(flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return settings.Wrong("%s: %w", flag, err)
	}
	if p.Cert == "" && !p.Insecure && !dial.IsLoopback(host) {
		return settings.Wrong("%s %s can be reached by other machines and has no TLS: give --tls-cert and --tls-key, "+
			"or --insecure-listen if everybody who reaches it may do everything", flag, address)
	}
	return nil
}

// CheckHTTP is Check of the address of ServeHTTP; empty: it does nothing.
func (p *Ports) CheckHTTP(address string) error {
	if address == "" {
		return nil
	}
	return p.Check(httpFlag, address)
}

// httpFlag is the flag with the address of ServeHTTP.
const httpFlag = "--http"

// Listen listens on the address of a flag, if this is allowed.
func (p *Ports) Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	if err := p.Check(flag, address); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another address with %s)", err, flag)
	}
	return listener, nil
}

// Scheme returns the scheme of gRPC addresses.
func (p *Ports) Scheme() string {
	if p.Cert != "" {
		return "grpcs://"
	}
	return "grpc://"
}
