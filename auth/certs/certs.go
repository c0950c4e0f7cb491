package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/forerunner-build/forerunner/auth/reload"
)

// Files are names of PEM files. Cert and Key are the program's own identity. CA has the authorities
// that must have signed the peer's certificate. Without CA, a client trusts the authorities of the
// system, and a server requests no certificate.
type Files struct{ Cert, Key, CA string }

// agreed is the TLS configuration for a handshake, in both forms.
type agreed struct {
	config *tls.Config
	grpc   credentials.TransportCredentials
}

// A Source provides the certificates for the next handshake. It may be used concurrently.
type Source struct {
	files    *reload.Value[agreed]
	refusals refusals // of servers
}

// NewServer reads the files of a server; Cert and Key are required.
func NewServer(f Files, log *zap.Logger) (*Source, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("a server's certificate and its key are needed, both")
	}
	return open(f, log, func(c *tls.Config, pool *x509.CertPool) {
		if c.ClientCAs = pool; pool != nil {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
	})
}

// NewClient reads the files of a client; Cert and Key come together.
func NewClient(f Files, log *zap.Logger) (*Source, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate and its key are given together or not at all")
	}
	return open(f, log, func(c *tls.Config, pool *x509.CertPool) {
		c.RootCAs = pool
		if len(c.Certificates) > 0 {
			c.GetClientCertificate = presenting(&c.Certificates[0], log)
		}
	})
}

// presenting returns a tls.Config.GetClientCertificate that presents own to servers that accept its
// authority. Like Go's own it sends none to others, but says so in the log.
func presenting(own *tls.Certificate, log *zap.Logger) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var warned sync.Once
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		err := asked.SupportsCertificate(own)
		if err == nil {
			return own, nil
		}
		if log != nil {
			warned.Do(func() {
				log.Warn("a server does not accept the authority of --tls-client-cert: it gets no certificate", zap.Error(err))
			})
		}
		return &tls.Certificate{}, nil
	}
}

func open(f Files, log *zap.Logger, trust func(*tls.Config, *x509.CertPool)) (*Source, error) {
	files, err := reload.New(log, func(contents [][]byte) (agreed, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
		if f.Cert != "" {
			pair, err := tls.X509KeyPair(contents[0], contents[1])
			if err != nil {
				return agreed{}, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		var pool *x509.CertPool
		if f.CA != "" {
			if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(contents[2]) {
				return agreed{}, fmt.Errorf("%s has no certificate of an authority in PEM form", f.CA)
			}
		}
		trust(config, pool)
		return agreed{config, credentials.NewTLS(config)}, nil
	}, f.Cert, f.Key, f.CA)
	if err != nil {
		return nil, err
	}
	return &Source{files: files, refusals: refusals{log: log}}, nil
}

// PagesConfig returns the configuration of a server of pages, which speaks HTTP/1.1 only.
func (s *Source) PagesConfig() *tls.Config {
	protocols := []string{"http/1.1"}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := s.files.Get().config.Clone()
			config.NextProtos = protocols
			return config, nil
		},
	}
}

// Refused logs that a handshake with a client failed, why, and what to do: a line a minute for each
// remedy. Those of Credentials are logged without it.
func (s *Source) Refused(peer string, err error) { s.refusals.note(peer, err) }

// Client returns the configuration for the next connection of a client other than gRPC's.
func (s *Source) Client() *tls.Config {
	config := s.files.Get().config.Clone()
	config.NextProtos = nil
	return config
}

// Credentials returns the credentials of a gRPC server or client.
func (s *Source) Credentials() credentials.TransportCredentials { return transport{s} }

// transport gives each handshake the credentials that are in force.
type transport struct{ source *Source }

// ClientHandshake implements credentials.TransportCredentials.
func (t transport) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.source.files.Get().grpc.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &opening{Conn: conn, deaf: make(chan struct{})}, info, nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.source.files.Get().grpc.ServerHandshake(raw)
	if err != nil {
		t.source.Refused(raw.RemoteAddr().String(), err)
	}
	return conn, info, err
}

// Info implements credentials.TransportCredentials.
func (t transport) Info() credentials.ProtocolInfo { return t.source.files.Get().grpc.Info() }

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials; gRPC does not call it.
func (t transport) OverrideServerName(string) error {
	return errors.New("the name of a server is part of its address")
}
