package records

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions are the options of a Redis. Zero values mean the defaults.
type RedisOptions struct {
	// MaxBytes limits each bucket; default 128 MiB.
	MaxBytes int64
	// Timeout limits each call, including connecting; default 1 s.
	Timeout time.Duration
	// TLS returns the configuration of the next connection, for rediss and similar schemes. The
	// server name is the host of the address. Default: the system's certificate authorities.
	TLS func() *tls.Config
}

func (o *RedisOptions) validate() {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultServiceTimeout
	}
	if o.TLS == nil {
		o.TLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
}

// clusterShards is the number of parts of a bucket in a Cluster. All data of one script is on one
// node, so parts spread a bucket over nodes. Each part has an equal share of the limit.
const clusterShards = 16

// IsRedisURL reports whether OpenRedis accepts the scheme of a URL.
func IsRedisURL(address string) bool {
	scheme, _, found := strings.Cut(address, "://")
	kind, _, _ := strings.Cut(scheme, "+")
	return found && (kind == "redis" || kind == "rediss")
}

// OpenRedis returns a Redis at a URL. It connects when it is first used.
//
//	redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]                    one server
//	redis+sentinel://HOST:PORT[/DATABASE]?master_name=NAME&addr=... what Sentinels say is the master
//	redis+cluster://HOST:PORT?addr=HOST:PORT...                     a Cluster, by some of its nodes
//
// The scheme rediss instead of redis is TLS. The parameters sentinel_username and sentinel_password
// are for the Sentinels where those ask for some. Errors do not show passwords.
func OpenRedis(address string, o RedisOptions) (*Redis, error) {
	o.validate()
	c, err := parseRedis(address, o)
	if err != nil {
		return nil, err
	}
	quietRedis()
	r := &Redis{options: o, servers: redisServers{redis.NewUniversalClient(c)}, shards: 1}
	if c.IsClusterMode {
		r.shards = clusterShards
	}
	return r, nil
}

// CheckRedis returns an error unless OpenRedis can use the URL.
func CheckRedis(address string) error {
	_, err := parseRedis(address, RedisOptions{})
	return err
}

func parseRedis(address string, o RedisOptions) (*redis.UniversalOptions, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("open Redis: this is not a URL") // the error of Parse has all of it
	}
	c, err := redisOptions(u, o)
	if err != nil {
		return nil, fmt.Errorf("open Redis %s: %w", u.Host, err)
	}
	return c, nil
}

// redisOptions returns the options in a URL.
func redisOptions(u *url.URL, o RedisOptions) (*redis.UniversalOptions, error) {
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("its parameters cannot be read")
	}
	take := func(name string) []string {
		defer delete(parameters, name)
		return parameters[name]
	}
	c := &redis.UniversalOptions{
		Addrs:      append([]string{u.Host}, take("addr")...),
		MasterName: strings.Join(take("master_name"), ""),

		Username:         u.User.Username(),
		SentinelUsername: strings.Join(take("sentinel_username"), ""),
		SentinelPassword: strings.Join(take("sentinel_password"), ""),

		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		// Do not retry: a swap whose answer was lost would conflict with itself, and callers prefer
		// to do without a late hint.
		MaxRetries: -1, DialerRetries: 1,
		// Only the managed services of Redis Inc. send these notifications.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	c.Password, _ = u.User.Password()
	if database := strings.Trim(u.Path, "/"); database != "" {
		if c.DB, err = strconv.Atoi(database); err != nil || c.DB < 0 {
			return nil, fmt.Errorf("database %q is not a number", database)
		}
	}
	for _, address := range c.Addrs {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("address %q is not of the form HOST:PORT", address)
		}
	}
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	if scheme == "rediss" {
		c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: o.TLS()}).DialContext(ctx, network, address)
		}
	}
	c.IsClusterMode = kind == "cluster"
	switch {
	case kind != "" && kind != "sentinel" && kind != "cluster":
		return nil, fmt.Errorf("%q is neither sentinel nor cluster", kind)
	case len(parameters) > 0:
		return nil, fmt.Errorf("parameters %q are not known", slices.Sorted(maps.Keys(parameters)))
	case (kind == "sentinel") != (c.MasterName != ""):
		return nil, errors.New("redis+sentinel takes a parameter master_name, the others none")
	case kind == "" && len(c.Addrs) > 1:
		return nil, errors.New("several addresses are for redis+sentinel and redis+cluster")
	case kind == "cluster" && c.DB != 0:
		return nil, errors.New("a Cluster has no databases")
	}
	return c, nil
}

// quietRedis prevents go-redis, which has one log for the whole process, from writing each failure
// to standard error. The caller gets the error and logs it once.
var quietRedis = sync.OnceFunc(logging.Disable)
