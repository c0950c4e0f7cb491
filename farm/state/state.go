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
	"github.com/forerunner-build/forerunner/settings"
)

// RecordsFile is the name of the file with hints in a program's data folder.
const RecordsFile = "records.db"

// boltPrefix begins a Location that is a file.
const boltPrefix = "bolt:"

// A Location is the store of hints and, in a Redis, of durable records, too: bolt:PATH, the URL of
// a Redis (records.OpenRedis), or grpc://HOST:PORT or grpcs://HOST:PORT of Buildbarn's services or
// a scheduler. Empty: a file in the data folder.
type Location string

// String returns s without a password.
func (s *Location) String() string {
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

// Set parses written.
func (s *Location) Set(written string) error {
	if written != "" && !strings.HasPrefix(written, boltPrefix) && !IsService(written) && !records.IsRedisURL(written) {
		return errors.New("it is none of bolt:PATH, redis://HOST:PORT, grpc://HOST:PORT and grpcs://HOST:PORT")
	}
	*s = Location(written)
	return nil
}

// IsService reports whether s is the address of a service.
func IsService(s string) bool {
	return strings.HasPrefix(s, "grpc://") || strings.HasPrefix(s, "grpcs://")
}

// Type returns the type of the flag.
func (s *Location) Type() string { return "where" }

// File returns the file with the hints, if s names one; otherwise it is empty.
func (s *Location) File() string {
	path, isFile := strings.CutPrefix(string(*s), boltPrefix)
	if !isFile {
		return ""
	}
	return path
}

// An Opened is the records of a Location.
type Opened struct {
	Hints records.Hints
	// Shared has the durable records that several programs share; nil: there are none.
	Shared records.Durable
	// SharedRuns are the records of runs that workers share; a scheduler has them.
	SharedRuns records.Hints
	Close      func() error
}

// Check returns an error unless Open can use the address in s, and the files of client with it.
func (s *Location) Check(client *dial.Client) error {
	var err error
	switch spec := string(*s); {
	case records.IsRedisURL(spec):
		if _, err = client.Certificates(); err == nil {
			err = records.CheckRedis(spec)
		}
	case IsService(spec):
		err = client.Check(spec)
	default:
		err = new(Location).Set(spec)
	}
	if err != nil {
		return settings.Wrong("--state: %w", err)
	}
	return nil
}

// Open opens the records; data is the program's data folder, client is for services. Records that
// these cannot store are in the file in the data folder.
func (s *Location) Open(data string, client *dial.Client, log *zap.Logger) (*Opened, error) {
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
		conn, err := client.Open(spec)
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
		return nil, fmt.Errorf("%q: %w", spec, new(Location).Set(spec))
	}
	hints, closeHints := OpenFile(file, records.BoltOptions{Logger: log})
	return &Opened{Hints: hints, Close: closeHints}, nil
}

// OpenRedis returns the Redis that s names, with the certificates of client if it uses TLS.
func (s *Location) OpenRedis(client *dial.Client) (*records.Redis, error) {
	source, err := client.Certificates()
	if err != nil {
		return nil, err
	}
	return records.OpenRedis(string(*s), records.RedisOptions{TLS: source.Client})
}

// OpenFile opens the hints in a file. If it cannot, it logs that, and keeps the hints in memory.
func OpenFile(path string, o records.BoltOptions) (store records.Hints, closeStore func() error) {
	file, err := records.OpenBolt(path, o)
	if err != nil {
		o.Logger.Warn("records are kept in memory only", zap.String("file", path), zap.Error(err))
		return records.NewMemory(0), func() error { return nil }
	}
	return file, file.Close
}

// services returns Hints that keep profiles and statistics in remote services, and the rest in rest.
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
