package stored

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// Blobs reads from a storage. Read returns all bytes of a small blob; the caller may change them.
type Blobs interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
}

// MaxBytes limits the memory of one Action, Command or Directory.
const MaxBytes = 2 << 20

// Message reads a message into m, and returns the memory that it takes. If that exceeds most, it
// returns an error.
func Message(ctx context.Context, blobs Blobs, d digest.Digest, most int64, m proto.Message) (bytes int64, err error) {
	if bytes = d.SizeBytes(); bytes <= most {
		var b []byte
		if b, err = blobs.Read(ctx, d); err != nil {
			return 0, err
		}
		if bytes += intake.Expansion(b, m); bytes <= most {
			return bytes, decode(b, d, m)
		}
	}
	return 0, status.Errorf(codes.FailedPrecondition, "%s is a %s that takes %d bytes of memory: it is not read for a page",
		d, m.ProtoReflect().Descriptor().Name(), bytes)
}

func decode(b []byte, d digest.Digest, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "%s is not a valid %s: %v", d, m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// Command reads the command of an operation from the storage of its instance name, which blobs
// returns.
func Command(ctx context.Context, blobs func(instance string, fn digest.Function) Blobs, r *historypb.Record) (*repb.Command, error) {
	fn, err := Function(r.GetDigestFunction())
	if err != nil {
		return nil, err
	}
	d, err := Digest(fn, r.GetCommand())
	if err != nil {
		return nil, err
	}
	command := &repb.Command{}
	if _, err := Message(ctx, blobs(r.GetInstanceName(), fn), d, MaxBytes, command); err != nil {
		return nil, err
	}
	return command, nil
}

// Function returns the digest function of that name.
func Function(name string) (digest.Function, error) {
	for _, fn := range digest.Functions() {
		if fn.String() == name {
			return fn, nil
		}
	}
	return 0, fmt.Errorf("digest function %q is not known", name)
}

// Digest parses HASH/SIZE.
func Digest(fn digest.Function, text string) (digest.Digest, error) {
	hash, size, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return digest.Digest{}, fmt.Errorf("%q is not of the form HASH/SIZE", text)
	}
	return digest.Parse(fn, hash, n)
}
