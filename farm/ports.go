package farm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certs"
)

// Ports say how the ports of a program are protected.
type Ports struct {
	// Cert, Key and ClientCA are files; see certs.Files. Without Cert there is no TLS.
	Cert, Key, ClientCA string
	// Insecure allows ports that others can reach although there is no TLS.
	Insecure bool
}

// Flags registers the flags of ports.
func (p *Ports) Flags(f *pflag.FlagSet) {
	f.StringVar(&p.Cert, "tls-cert", "", "`file` with the certificate of all ports, PEM; taken up anew when it changes, like all files of --tls-…")
	f.StringVar(&p.Key, "tls-key", "", "`file` with the key of --tls-cert, PEM")
	f.StringVar(&p.ClientCA, "tls-client-ca", "", "`file` with the authorities of clients' certificates, PEM: who calls has to have one, or a token")
	f.BoolVar(&p.Insecure, "insecure-listen", false, "listen elsewhere than on loopback without TLS: whoever reaches the port reads and writes all that goes over it")
}

// files are those that the flags name.
func (p *Ports) files() []string { return []string{p.Cert, p.Key, p.ClientCA} }

// A protection is what stands before the ports of a program; either part may be nil.
type protection struct {
	source *certs.Source
	guard  *auth.Guard
}

// protect makes the protection of a program that knows more of its callers than their
// certificates.
func (p *Ports) protect(o auth.Options) (made protection, err error) {
	if made.source, err = p.open(o.Logger); err != nil {
		return made, err
	}
	o.Certificates = p.ClientCA != ""
	if o.Configured() {
		made.guard, err = auth.New(o)
	}
	return made, err
}

// encrypt returns l with TLS, if there is any.
func (p protection) encrypt(l net.Listener) net.Listener {
	if p.source == nil {
		return l
	}
	return tls.NewListener(l, p.source.Config())
}

// pages returns pages as they are for those with a right.
func (p protection) pages(right auth.Right, pages http.Handler) http.Handler {
	if p.guard == nil {
		return pages
	}
	return p.guard.HTTP(right, pages)
}

// credentials returns those of a gRPC server.
func (p protection) credentials() credentials.TransportCredentials {
	if p.source != nil {
		return orInProcess{p.source.Credentials()}
	}
	return orInProcess{insecure.NewCredentials()}
}

// open reads the files; nil if there is to be no TLS.
func (p *Ports) open(log *zap.Logger) (*certs.Source, error) {
	if p.Cert == "" && p.Key == "" {
		if p.ClientCA != "" {
			return nil, errors.New("--tls-client-ca: there is no TLS without --tls-cert and --tls-key")
		}
		return nil, nil
	}
	source, err := certs.NewServer(certs.Files{Cert: p.Cert, Key: p.Key, CA: p.ClientCA}, log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key, --tls-client-ca: %w", err)
	}
	return source, nil
}

// listen listens for what flag names, where it may.
func (p *Ports) listen(ctx context.Context, flag, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if p.Cert == "" && !p.Insecure && !isLoopback(host) {
		return nil, fmt.Errorf("%s %s can be reached by other machines and has no TLS: give --tls-cert and --tls-key, "+
			"or --insecure-listen if whoever reaches it may do everything", flag, address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another address with %s)", err, flag)
	}
	return listener, nil
}

// scheme returns what the addresses of gRPC ports begin with.
func (p *Ports) scheme() string {
	if p.Cert != "" {
		return "grpcs://"
	}
	return "grpc://"
}

// isLoopback reports whether a host is certain to be this machine and to be reached by
// it alone. A name is not: what it stands for may change.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
