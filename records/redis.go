package records

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/redis/go-redis/v9"
)

var (
	_ Hints   = (*Redis)(nil)
	_ Durable = (*Redis)(nil)
)

// A Redis stores Hints and Durable records on Redis servers, version 5 or later, which many
// programs can share. OpenRedis makes one; Close closes it.
//
// It caches nothing: all programs see each record as soon as one program has put it. Every write is
// one script, which enforces the limit of its bucket as a Memory does. When Put has returned, the
// server has the record. Its durability depends on the server's configuration, and a fail-over
// loses the records that the new master did not have. If the server evicts by itself
// (maxmemory-policy), it evicts whole buckets; with the limits here that is unnecessary.
type Redis struct {
	options RedisOptions
	servers servers
	shards  uint32
}

// servers are the Redis servers of a Redis. The interface names no type of go-redis: otherwise each
// package that uses a Redis would compile thousands of their methods, which takes seconds.
type servers interface {
	// run runs a script. A nil reply is ErrNotFound.
	run(ctx context.Context, s script, names []string, arguments ...any) (any, error)
	close() error
}

// Close closes the connections. After it, all methods return ErrClosed.
func (r *Redis) Close() error {
	if err := r.servers.close(); err != nil {
		return fmt.Errorf("close Redis: %w", err)
	}
	return nil
}

// Get implements Hints and Durable.
func (r *Redis) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	member := encodeKey(k)
	value, err := r.run(ctx, getScript, r.names(k, member), member)
	if err != nil {
		return nil, about("get", k, err)
	}
	text, ok := value.(string)
	if !ok {
		return nil, about("get", k, fmt.Errorf("the script returned a %T", value))
	}
	return []byte(text), nil
}

// Put implements Hints and Durable.
func (r *Redis) Put(ctx context.Context, k Key, value []byte) error {
	if err := r.storable(ctx, k, value); err != nil {
		return about("put", k, err)
	}
	return about("put", k, r.write(ctx, k, "put", value))
}

// CompareAndSwap implements Durable. After an error other than ErrConflict and ErrInvalid, the swap
// may have happened or may still happen.
func (r *Redis) CompareAndSwap(ctx context.Context, k Key, old, value []byte) error {
	if err := r.storable(ctx, k, value); err != nil {
		return about("swap", k, err)
	}
	if old == nil {
		return about("swap", k, r.write(ctx, k, "add", value))
	}
	return about("swap", k, r.write(ctx, k, "swap", value, old))
}

func (r *Redis) storable(ctx context.Context, k Key, value []byte) error {
	if err := usable(ctx, k); err != nil {
		return err
	}
	return checkValue(k, len(value), r.limit())
}

// limit returns the maximum size in bytes of one part of a bucket.
func (r *Redis) limit() int64 { return r.options.MaxBytes / int64(r.shards) }

// write runs the script that changes a record.
func (r *Redis) write(ctx context.Context, k Key, operation string, value []byte, old ...[]byte) error {
	member := encodeKey(k)
	// The counted size of a record besides its value and twice its member.
	besides := recordBytes(k, 0) - 2*int64(len(member))
	arguments := []any{member, operation, r.limit(), besides, value}
	for _, b := range old {
		arguments = append(arguments, b)
	}
	done, err := r.run(ctx, writeScript, r.names(k, member), arguments...)
	if err == nil && done != int64(1) {
		return ErrConflict
	}
	return err
}

// run runs a script. A nil reply is ErrNotFound.
func (r *Redis) run(ctx context.Context, s script, names []string, arguments ...any) (any, error) {
	limited, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	reply, err := r.servers.run(limited, s, names, arguments...)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrClosed) {
		return nil, ctx.Err()
	}
	return reply, err
}

// names returns the server keys of the part of a bucket that has a record: a hash of values by
// member, whose field "bytes" is their counted size, and a sorted set of members by time of last
// use. In a Cluster, the text in braces determines the node.
func (r *Redis) names(k Key, member []byte) []string {
	part := k.Bucket
	if r.shards > 1 {
		h := fnv.New32a()
		_, _ = h.Write(member)
		part = fmt.Sprintf("%s/%d", k.Bucket, h.Sum32()%r.shards)
	}
	return []string{"forerunner:{" + part + "}:values", "forerunner:{" + part + "}:uses"}
}

// A script is a script that Redis servers run.
type script int

const (
	getScript script = iota
	writeScript
)

var (
	//go:embed redis_get.lua
	getSource string
	//go:embed redis_write.lua
	writeSource string

	scripts = [...]*redis.Script{getScript: redis.NewScript(getSource), writeScript: redis.NewScript(writeSource)}
)

// redisServers implements servers with go-redis.
type redisServers struct{ client redis.UniversalClient }

func (s redisServers) run(ctx context.Context, run script, names []string, arguments ...any) (any, error) {
	reply, err := scripts[run].Run(ctx, s.client, names, arguments...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, ErrNotFound
	case errors.Is(err, redis.ErrClosed):
		return nil, ErrClosed
	}
	return reply, err
}

func (s redisServers) close() error {
	if err := s.client.Close(); !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
