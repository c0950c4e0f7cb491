package dial

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/forerunner-build/forerunner/auth/certs"
	"github.com/forerunner-build/forerunner/auth/reload"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/wire"
	"github.com/forerunner-build/forerunner/settings"
)

// The initial windows for one call, and for all calls of a connection. gRPC's default begins with
// 64 KiB, which takes ten round trips until it is enough for a large blob, and ends with 16 MiB for
// both. The windows of servers are in package intake, except connectionWindow, which does not limit
// memory: gRPC returns it before anything is read.
const (
	streamWindow     = 16 << 20
	ConnectionWindow = 64 << 20
)

// A Client is a program's trust and identity as a client. The zero Client trusts the authorities of
// the system and has no identity.
type Client struct {
	// CA, Cert and Key are files; see certs.Files.
	CA   string `flag:"tls-ca" group:"Credentials" unit:"FILE" otherwise:"those of the system" doc:"File with the authorities of servers at grpcs:// addresses, PEM"`
	Cert string `flag:"tls-client-cert" unit:"FILE" otherwise:"none" doc:"File with the certificate that this program presents to servers, PEM"`
	Key  string `flag:"tls-client-key" unit:"FILE" otherwise:"none" doc:"File with the key of --tls-client-cert, PEM"`
	// Token is sent with every call.
	Token string `flag:"token-file" unit:"FILE" otherwise:"none" doc:"File with a bearer token that this program presents to servers at grpcs:// addresses or on loopback"`
	// Logger logs errors of changed files. Nil: they are not logged.
	Logger *zap.Logger
	// Connect makes the connections, if it is not nil.
	Connect func(context.Context, string) (net.Conn, error)
	// Within makes the connections of Open without sockets, to a server in this process. Nil: Open
	// is Dial.
	Within func() (Conn, error)
}

// A Conn is a connection to a server.
type Conn interface {
	grpc.ClientConnInterface
	// GetState is READY while the server takes calls.
	GetState() connectivity.State
	Close() error
}

// Open is Dial, or a connection within this process.
func (c *Client) Open(target string) (Conn, error) {
	if c.Within != nil {
		return c.Within()
	}
	return c.Dial(target)
}

// Receive limits the bytes of a message that a Client receives.
const Receive = casserver.MaxMessageBytes

// Files returns the files in the flags.
func (c *Client) Files() []string { return []string{c.CA, c.Cert, c.Key, c.Token} }

// Dial connects to grpcs://HOST:PORT with TLS, or to grpc://HOST:PORT or HOST:PORT without; it does
// not wait for the other side. Of several HOST:PORT, separated by commas, it connects to one that
// answers, and to another when that one no longer does.
func (c *Client) Dial(target string) (*grpc.ClientConn, error) {
	whom, options, err := c.prepare(target)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(whom, options...)
}

// Check returns an error unless Dial can use the target, and the files of c with it.
func (c *Client) Check(target string) error {
	_, _, err := c.prepare(target)
	return err
}

// prepare returns what Dial gives to gRPC. Its errors are those of settings.
func (c *Client) prepare(target string) (whom string, options []grpc.DialOption, err error) {
	addresses, encrypted, err := Addresses(target)
	if err != nil {
		return "", nil, err
	}
	transport := insecure.NewCredentials()
	if encrypted {
		source, err := c.Certificates()
		if err != nil {
			return "", nil, err
		}
		transport = source.Credentials()
	}
	options = append(dialOptions(), grpc.WithTransportCredentials(transport))
	whom = "dns:///" + addresses[0]
	switch {
	case c.Connect != nil:
		whom = "passthrough:///" + addresses[0]
		options = append(options, grpc.WithContextDialer(c.Connect))
	case len(addresses) > 1:
		name, list := several(addresses)
		whom = name
		options = append(options, grpc.WithResolvers(list))
	}
	if c.Connect == nil && !slices.ContainsFunc(addresses, proxied) {
		options = append(options, grpc.WithContextDialer(connect))
	}
	if c.Token != "" {
		if !encrypted && slices.ContainsFunc(addresses, elsewhere) {
			return "", nil, settings.Wrong("--token-file: the token would be sent in the clear to %s: use grpcs://", target)
		}
		t, err := newToken(c.Token, encrypted, c.Logger)
		if err != nil {
			return "", nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(t))
	}
	return whom, options, nil
}

// Certificates reads the files with the trusted authorities and the identity of c.
func (c *Client) Certificates() (*certs.Source, error) {
	source, err := certs.NewClient(certs.Files{Cert: c.Cert, Key: c.Key, CA: c.CA}, c.Logger)
	if err != nil {
		return nil, settings.Wrong("--tls-client-cert, --tls-client-key, --tls-ca: %w", err)
	}
	return source, nil
}

// Dial connects to HOST:PORT without identity and encryption; it does not wait for the other side.
func Dial(address string) (*grpc.ClientConn, error) { return (&Client{}).Dial(address) }

// dialOptions are those of every connection.
func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(Receive), grpc.ForceCodecV2(wire.Codec())),
		// Soon after the other side is back, so are we.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(ConnectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: 10 * time.Second}),
	}
}

// pingEvery is the interval of pings on a connection with open streams: by default, gRPC's servers
// close connections with pings more often than every 5 minutes, or without a stream.
const pingEvery = 6 * time.Minute

// proxied reports whether gRPC reaches HOST:PORT through a proxy from the environment. It does so
// only with its default dialer.
func proxied(address string) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}})
	return proxy != nil || err != nil
}

// connect connects to HOST:PORT. The kernel asks whether a quiet machine is still there, which no
// server counts.
func connect(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 2}}
	return d.DialContext(ctx, "tcp", address)
}

// A token is the content of a file, as it is at each call.
type token struct {
	header  *reload.Value[string]
	private bool
}

func newToken(file string, private bool, log *zap.Logger) (token, error) {
	header, err := reload.New(log, func(contents [][]byte) (string, error) {
		text := strings.TrimSpace(string(contents[0]))
		if text == "" || strings.ContainsAny(text, " \t\r\n") {
			return "", errors.New("this is not a token, which is one word")
		}
		return "Bearer " + text, nil
	}, file)
	if err != nil {
		return token{}, settings.Wrong("--token-file: %w", err)
	}
	return token{header, private}, nil
}

var _ credentials.PerRPCCredentials = token{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": t.header.Get()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t token) RequireTransportSecurity() bool { return t.private }
