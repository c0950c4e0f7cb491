package farm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/proto/names"
)

// recordsFile is where a program keeps its records, in its data folder.
const recordsFile = "records.db"

// boltPrefix begins a State that is a file.
const boltPrefix = "bolt:"

// A State is where records are kept: bolt:PATH, the URL of a Redis (kv.OpenRedis), or
// grpc://HOST:PORT or grpcs://HOST:PORT of Buildbarn's services or a scheduler. Empty: a file in the
// data folder.
type State string

// String returns s as it may be shown, without a password.
func (s *State) String() string {
	if !kv.IsRedisURL(string(*s)) {
		return string(*s)
	}
	u, err := url.Parse(string(*s))
	if err != nil {
		return "redis://..."
	}
	if q := u.Query(); q.Has(sentinelPassword) {
		q.Set(sentinelPassword, "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// sentinelPassword is the parameter of a URL that is as secret as its password.
const sentinelPassword = "sentinel_password"

// Set makes s what is written.
func (s *State) Set(written string) error {
	if written != "" && !strings.HasPrefix(written, boltPrefix) && !isService(written) && !kv.IsRedisURL(written) {
		return errors.New("it is none of bolt:PATH, redis://HOST:PORT, grpc://HOST:PORT and grpcs://HOST:PORT")
	}
	*s = State(written)
	return nil
}

func isService(s string) bool {
	return strings.HasPrefix(s, "grpc://") || strings.HasPrefix(s, "grpcs://")
}

// Type says what the flag wants.
func (s *State) Type() string { return "where" }

// stateFlag registers the flag.
func stateFlag(f *pflag.FlagSet, s *State, what string) {
	f.Var(s, "state", what+": bolt:`PATH`, redis://HOST:PORT (also rediss, redis+sentinel, redis+cluster) "+
		"or grpc(s)://HOST:PORT of a scheduler or Buildbarn's services (default bolt:DATA/"+recordsFile+")")
}

// file is where the records are, if a file that s names has them; else empty.
func (s *State) file() string {
	path, isFile := strings.CutPrefix(string(*s), boltPrefix)
	if !isFile {
		return ""
	}
	return path
}

// open opens the records; data is the program's data folder, client for services. What these have
// no room for is in the file there.
func (s *State) open(data string, client *dial.Client, log *zap.Logger) (store kv.Store, closeStore func() error, err error) {
	file := filepath.Join(data, recordsFile)
	spec := string(*s)
	switch {
	case kv.IsRedisURL(spec):
		r, err := s.openRedis(client)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	case isService(spec):
		conn, err := client.Dial(spec)
		if err != nil {
			return nil, nil, err
		}
		rest, closeRest := openFile(file, kv.BoltOptions{Logger: log})
		return services(conn, rest), func() error { return errors.Join(conn.Close(), closeRest()) }, nil
	case s.file() != "":
		file = s.file()
	case spec != "":
		return nil, nil, fmt.Errorf("%q: %w", spec, new(State).Set(spec))
	}
	store, closeStore = openFile(file, kv.BoltOptions{Logger: log})
	return store, closeStore, nil
}

// openRedis returns the Redis that s names, with the certificates of client where it is one with TLS.
func (s *State) openRedis(client *dial.Client) (*kv.Redis, error) {
	source, err := client.Certificates()
	if err != nil {
		return nil, err
	}
	return kv.OpenRedis(string(*s), kv.RedisOptions{TLS: source.Client})
}

// openFile opens the records in a file. They are hints: if that cannot be done, which is
// logged, they are kept until the program ends.
func openFile(path string, o kv.BoltOptions) (store kv.Store, closeStore func() error) {
	file, err := kv.OpenBolt(path, o)
	if err != nil {
		o.Logger.Warn("records of former actions are kept in memory only", zap.String("file", path), zap.Error(err))
		return inMemory{kv.NewMemory(0), err}, func() error { return nil }
	}
	return file, file.Close
}

// inMemory stands for a file that could not be opened. What must outlast the program cannot be kept in it.
type inMemory struct {
	*kv.Memory
	why error
}

// Flush returns why nothing is durable.
func (m inMemory) Flush(context.Context) error { return m.why }

// services returns profiles and statistics in services elsewhere, and the rest in a store.
func services(conn grpc.ClientConnInterface, rest kv.Store) kv.Store {
	profiles := kv.NewFSAC(conn, kv.FSACOptions{Buckets: []string{names.ProfileBucket, names.CoarseBucket}})
	return byBucket{
		stores: map[string]kv.Store{
			names.ProfileBucket:    profiles,
			names.CoarseBucket:     profiles,
			names.StatisticsBucket: kv.NewISCC(conn, kv.ISCCOptions{}),
		},
		rest: rest,
	}
}

// byBucket is a Store of some stores for a bucket each, and one for all others.
type byBucket struct {
	stores map[string]kv.Store
	rest   kv.Store
}

func (b byBucket) of(bucket string) kv.Store {
	if s := b.stores[bucket]; s != nil {
		return s
	}
	return b.rest
}

// Get implements kv.Store.
func (b byBucket) Get(ctx context.Context, k kv.Key) ([]byte, error) {
	return b.of(k.Bucket).Get(ctx, k)
}

// Put implements kv.Store.
func (b byBucket) Put(ctx context.Context, k kv.Key, value []byte) error {
	return b.of(k.Bucket).Put(ctx, k, value)
}

// Flush returns when what the other buckets were given is durable, where it is not at once.
func (b byBucket) Flush(ctx context.Context) error {
	if file, ok := b.rest.(interface{ Flush(context.Context) error }); ok {
		return file.Flush(ctx)
	}
	return nil
}
