package state

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
)

// RecordsFile is where a program keeps its hints, in its data folder.
const RecordsFile = "records.db"

// boltPrefix begins a Place that is a file.
const boltPrefix = "bolt:"

// A Place is where hints are kept, and in a Redis durable records, too: bolt:PATH, the URL of a
// Redis (records.OpenRedis), or grpc://HOST:PORT or grpcs://HOST:PORT of Buildbarn's services or a
// scheduler. Empty: a file in the data folder.
type Place string

// String returns s as it may be shown, without a password.
func (s *Place) String() string {
	if !records.IsRedisURL(string(*s)) {
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
func (s *Place) Set(written string) error {
	if written != "" && !strings.HasPrefix(written, boltPrefix) && !IsService(written) && !records.IsRedisURL(written) {
		return errors.New("it is none of bolt:PATH, redis://HOST:PORT, grpc://HOST:PORT and grpcs://HOST:PORT")
	}
	*s = Place(written)
	return nil
}

// IsService reports whether s is the address of a service.
func IsService(s string) bool {
	return strings.HasPrefix(s, "grpc://") || strings.HasPrefix(s, "grpcs://")
}

// Type says what the flag wants.
func (s *Place) Type() string { return "where" }

// File is where the hints are, if a file that s names has them; else empty.
func (s *Place) File() string {
	path, isFile := strings.CutPrefix(string(*s), boltPrefix)
	if !isFile {
		return ""
	}
	return path
}

// An Opened is a Place's records.
type Opened struct {
	Hints records.Hints
	// Shared has the durable records that other programs have, too; nil: there is no such place.
	Shared records.Durable
	// Accounts are what workers share of former runs; a scheduler has them.
	Accounts records.Hints
	Close    func() error
}

// Open opens the records; data is the program's data folder, client for services. What these have
// no room for is in the file there.
func (s *Place) Open(data string, client *dial.Client, log *zap.Logger) (*Opened, error) {
	file := filepath.Join(data, RecordsFile)
	spec := string(*s)
	switch {
	case records.IsRedisURL(spec):
		r, err := s.OpenRedis(client)
		if err != nil {
			return nil, err
		}
		return &Opened{Hints: r, Shared: r, Close: r.Close}, nil
	case IsService(spec):
		conn, err := client.Dial(spec)
		if err != nil {
			return nil, err
		}
		rest, closeRest := OpenFile(file, records.BoltOptions{Logger: log})
		return &Opened{
			Hints: services(conn, rest), Close: func() error { return errors.Join(conn.Close(), closeRest()) },
		}, nil
	case s.File() != "":
		file = s.File()
	case spec != "":
		return nil, fmt.Errorf("%q: %w", spec, new(Place).Set(spec))
	}
	hints, closeHints := OpenFile(file, records.BoltOptions{Logger: log})
	return &Opened{Hints: hints, Close: closeHints}, nil
}

// OpenRedis returns the Redis that s names, with the certificates of client where it is one with
// TLS.
func (s *Place) OpenRedis(client *dial.Client) (*records.Redis, error) {
	source, err := client.Certificates()
	if err != nil {
		return nil, err
	}
	return records.OpenRedis(string(*s), records.RedisOptions{TLS: source.Client})
}

// OpenFile opens the hints in a file. If that cannot be done, which is
// logged, they are kept until the program ends.
func OpenFile(path string, o records.BoltOptions) (store records.Hints, closeStore func() error) {
	file, err := records.OpenBolt(path, o)
	if err != nil {
		o.Logger.Warn("records are kept in memory only", zap.String("file", path), zap.Error(err))
		return records.NewMemory(0), func() error { return nil }
	}
	return file, file.Close
}

// services returns profiles and statistics in services elsewhere, and the rest in a store.
func services(conn grpc.ClientConnInterface, rest records.Hints) records.Hints {
	profiles := records.NewFSAC(conn, records.FSACOptions{Buckets: []string{names.ProfileBucket, names.CoarseBucket}})
	return byBucket{
		stores: map[string]records.Hints{
			names.ProfileBucket:    profiles,
			names.CoarseBucket:     profiles,
			names.StatisticsBucket: records.NewISCC(conn, records.ISCCOptions{}),
		},
		rest: rest,
	}
}

// byBucket is Hints of some stores for a bucket each, and one for all others.
type byBucket struct {
	stores map[string]records.Hints
	rest   records.Hints
}

func (b byBucket) of(bucket string) records.Hints {
	if s := b.stores[bucket]; s != nil {
		return s
	}
	return b.rest
}

// Get implements records.Hints.
func (b byBucket) Get(ctx context.Context, k records.Key) ([]byte, error) {
	return b.of(k.Bucket).Get(ctx, k)
}

// Put implements records.Hints.
func (b byBucket) Put(ctx context.Context, k records.Key, value []byte) error {
	return b.of(k.Bucket).Put(ctx, k, value)
}
