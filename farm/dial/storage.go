package dial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/settings"
)

// maxConnections bounds the connections to one endpoint.
const maxConnections = 64

// An endpoint is where storage is, and how it is spoken to.
type endpoint struct {
	target      string // grpc://HOST:PORT or grpcs://HOST:PORT
	connections int
	token       string // file; empty: that of the Client
	options     casclient.Options
}

// endpointOptions are the options after an address, as in
// grpcs://HOST:PORT?instance=main&connections=4.
func endpointOptions(e *endpoint) map[string]func(value string) error {
	positive := func(into *time.Duration) func(string) error {
		return func(value string) (err error) {
			if *into, err = time.ParseDuration(value); err == nil && *into <= 0 {
				err = errors.New("it has to be positive")
			}
			return err
		}
	}
	return map[string]func(string) error{
		"instance": func(value string) error {
			e.options.InstancePrefix = value
			if value == "" {
				return errors.New("it is empty")
			}
			return instance.Check(value)
		},
		"connections": func(value string) (err error) {
			if e.connections, err = strconv.Atoi(value); err == nil && (e.connections < 1 || e.connections > maxConnections) {
				err = fmt.Errorf("it must be from 1 to %d", maxConnections)
			}
			return err
		},
		"compression": func(value string) error {
			e.options.NoCompression = value == "off"
			if value != "off" && value != "zstd" {
				return errors.New("it must be zstd or off")
			}
			return nil
		},
		"retry":      positive(&e.options.RetryFor),
		"stall":      positive(&e.options.StallAfter),
		"token-file": func(value string) error { e.token = value; return nil },
	}
}

// parseEndpoint parses an address with options; o has the defaults.
func parseEndpoint(spec string, o casclient.Options) (endpoint, error) {
	target, query, _ := strings.Cut(spec, "?")
	e := endpoint{target: target, connections: 1, options: o}
	values, err := url.ParseQuery(query)
	if err != nil {
		return e, fmt.Errorf("%q: %w", spec, err)
	}
	readers := endpointOptions(&e)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read, known := readers[name]
		switch {
		case !known:
			return e, fmt.Errorf("%q: there is no option %s; here are %q", spec, name, slices.Sorted(maps.Keys(readers)))
		case len(values[name]) > 1:
			return e, fmt.Errorf("%q: option %s is here twice", spec, name)
		}
		if err := read(values[name][0]); err != nil {
			return e, fmt.Errorf("%q: option %s: %w", spec, name, err)
		}
	}
	return e, nil
}

// CheckStorage returns an error unless spec is the address of storage, with options.
func CheckStorage(spec string) error {
	e, err := parseEndpoint(spec, casclient.Options{})
	if err != nil {
		return err
	}
	return Check(e.target)
}

// A Storage is external storage.
type Storage struct {
	*casclient.Client
	Blobs, results *connections // results is nil if they are with the blobs
	Prefix         string       // of instance names
}

// Close ends the connections.
func (s *Storage) Close() error { return errors.Join(s.Blobs.Close(), s.results.Close()) }

// OpenStorage connects to storage, and to the action cache if that is separate (its address is
// empty otherwise). It does not wait for them. o has defaults for the addresses' options.
func (c *Client) OpenStorage(storage, actionCache string, o casclient.Options) (*Storage, error) {
	o.NoCompression = o.NoCompression || c.isNear(storage)
	e, results, err := parseEndpoints(storage, actionCache, o)
	if err != nil {
		return nil, err
	}
	s := &Storage{Prefix: e.options.InstancePrefix}
	if s.Blobs, err = c.dialAll(e); err != nil {
		return nil, fmt.Errorf("--storage: %w", err)
	}
	if results != nil {
		if s.results, err = c.dialAll(*results); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", actionCacheName, err), s.Close())
		}
		e.options.ActionCache = s.results
	}
	s.Client = casclient.New(s.Blobs, e.options)
	return s, nil
}

// isNear reports whether storage is in this process or on this machine. Without a network, compressing
// costs more than it saves.
func (c *Client) isNear(storage string) bool {
	target, _, _ := strings.Cut(storage, "?")
	addresses, _, err := Addresses(target)
	return c.Within != nil || c.Connect != nil || err == nil && !slices.ContainsFunc(addresses, elsewhere)
}

// CheckStorage returns an error unless OpenStorage can use the addresses, and the files of c and of
// the addresses' options.
func (c *Client) CheckStorage(storage, actionCache string) error {
	e, results, err := parseEndpoints(storage, actionCache, casclient.Options{})
	if err != nil {
		return err
	}
	if err := c.with(e).Check(e.target); err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	if results == nil {
		return nil
	}
	if err := c.with(*results).Check(results.target); err != nil {
		return fmt.Errorf("%s: %w", actionCacheName, err)
	}
	return nil
}

// actionCacheName is the name of the setting with the address of the action cache.
const actionCacheName = "tuning.action_cache"

// parseEndpoints parses the addresses of OpenStorage; results is nil without one for them.
func parseEndpoints(storage, actionCache string, o casclient.Options) (blobs endpoint, results *endpoint, err error) {
	if blobs, err = parseEndpoint(storage, o); err != nil {
		return blobs, nil, settings.Wrong("--storage: %w", err)
	}
	if actionCache == "" {
		return blobs, nil, nil
	}
	apart, err := parseEndpoint(actionCache, blobs.options)
	if err == nil && apart.options != blobs.options {
		err = fmt.Errorf("%q: an action cache has the options connections and token-file, all others are those of --storage", actionCache)
	}
	if err != nil {
		return blobs, nil, settings.Wrong("%s: %w", actionCacheName, err)
	}
	return blobs, &apart, nil
}

// with returns c with the token of an endpoint, if it has one.
func (c *Client) with(e endpoint) *Client {
	own := *c
	if e.token != "" {
		own.Token = e.token
	}
	return &own
}

// dialAll makes all connections of an endpoint.
func (c *Client) dialAll(e endpoint) (*connections, error) {
	own := c.with(e)
	all := &connections{}
	for range e.connections {
		conn, err := own.Open(e.target)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all.list = append(all.list, conn)
	}
	return all, nil
}

// connections are several to one endpoint, which take turns: one may not have as many
// streams, or not be as fast, as the network allows.
type connections struct {
	list  []Conn
	calls atomic.Uint64
}

func (c *connections) next() Conn { return c.list[c.calls.Add(1)%uint64(len(c.list))] }

// Invoke implements grpc.ClientConnInterface.
func (c *connections) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.next().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *connections) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return c.next().NewStream(ctx, desc, method, opts...)
}

// Close closes all connections. It may be called for nil.
func (c *connections) Close() (err error) {
	if c == nil {
		return nil
	}
	for _, conn := range c.list {
		err = errors.Join(err, conn.Close())
	}
	return err
}
