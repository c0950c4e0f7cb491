package records

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// maxServiceMessage limits a message of a call: a value, a digest, and an instance name.
const maxServiceMessage = MaxValueBytes + instance.MaxBytes + 1024

// A serviceStore stores Hints in one of Buildbarn's services, as messages of one type by reduced
// action digest.
type serviceStore[M proto.Message] struct {
	buckets []string // the service's buckets; others are empty and reject writes
	timeout time.Duration
	empty   func() M
	get     func(ctx context.Context, k Key) (M, error)
	put     func(ctx context.Context, k Key, m M) error
}

// Get implements Hints.
func (s *serviceStore[M]) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	if !slices.Contains(s.buckets, k.Bucket) {
		return nil, about("get", k, ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	m, err := s.get(ctx, k)
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, about("get", k, ErrNotFound)
	case err != nil:
		return nil, about("get", k, err)
	}
	value, err := encode(m)
	if err != nil {
		return nil, about("get", k, err)
	}
	return append([]byte{}, value...), nil
}

// Put implements Hints.
func (s *serviceStore[M]) Put(ctx context.Context, k Key, value []byte) error {
	if err := usable(ctx, k); err != nil {
		return about("put", k, err)
	}
	if !slices.Contains(s.buckets, k.Bucket) {
		return about("put", k, fmt.Errorf("%w: the bucket is not kept in the service", ErrInvalid))
	}
	if err := checkValue(k, len(value), maxServiceMessage); err != nil {
		return about("put", k, err)
	}
	m := s.empty()
	if err := proto.Unmarshal(value, m); err != nil {
		return about("put", k, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return about("put", k, s.put(ctx, k, m))
}

// encode returns the deterministic encoding of a message.
func encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
