package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
)

// ErrInvalidName is wrapped by errors about a resource name, except about its digest and its
// instance name.
var ErrInvalidName = errors.New("invalid name")

// maxNameLength bounds resource names; the longest useful one is some 200 bytes
// plus the instance name and metadata.
const maxNameLength = 4096

// ResourceHeader is the header that may repeat the resource name of a
// ByteStream call (REv2, "ContentAddressableStorage").
const ResourceHeader = "build.bazel.remote.execution.v2.resource-name"

// A Resource is the content of a ByteStream resource name (REv2, "ContentAddressableStorage"). It
// is comparable, so it can key a table.
type Resource struct {
	Instance   string
	UUID       string // of an upload; empty when reading
	Compressor repb.Compressor_Value
	Digest     digest.Digest
}

// ParseRead parses "[instance/]blobs/[function/]hash/size" or the compressed form. Its errors wrap
// ErrInvalidName, instance.ErrInvalid or digest.ErrInvalid.
func ParseRead(name string) (Resource, error) {
	r, segments, err := splitInstance(name)
	if err != nil {
		return Resource{}, err
	}
	rest, err := r.parseBlob(segments)
	if err != nil {
		return Resource{}, fmt.Errorf("resource %.300q: %w", name, err)
	}
	if len(rest) > 0 {
		return Resource{}, fmt.Errorf("%w: resource %.300q goes on after the size", ErrInvalidName, name)
	}
	return r, nil
}

// ParseWrite parses "[instance/]uploads/uuid/blobs/[function/]hash/size[/metadata]" or the
// compressed form. It drops the metadata, which may have any number of segments. The errors are the
// same as those of ParseRead.
func ParseWrite(name string) (Resource, error) {
	r, segments, err := splitInstance(name)
	if err != nil {
		return Resource{}, err
	}
	if len(segments) < 2 || segments[0] != "uploads" || !isUUID(segments[1]) {
		return Resource{}, fmt.Errorf("%w: resource %.300q is not [instance/]uploads/<uuid>/…",
			ErrInvalidName, name)
	}
	r.UUID = segments[1]
	if _, err := r.parseBlob(segments[2:]); err != nil {
		return Resource{}, fmt.Errorf("resource %.300q: %w", name, err)
	}
	return r, nil
}

// splitInstance parses the part before the first reserved segment, and returns the segments from
// there.
func splitInstance(name string) (Resource, []string, error) {
	if len(name) > maxNameLength {
		return Resource{}, nil, fmt.Errorf("%w: resource name of %d bytes", ErrInvalidName, len(name))
	}
	segments := strings.Split(name, "/")
	i := slices.IndexFunc(segments, instance.Reserved)
	if i < 0 {
		return Resource{}, nil, fmt.Errorf("%w: resource %.300q names no blob", ErrInvalidName, name)
	}
	r := Resource{Instance: strings.Join(segments[:i], "/")}
	if i > 0 && r.Instance == "" {
		return Resource{}, nil, fmt.Errorf("%w: resource %.300q begins with a slash", ErrInvalidName, name)
	}
	return r, segments[i:], instance.Check(r.Instance)
}

// parseBlob parses from "blobs" or "compressed-blobs" to the size, and returns
// the segments after it.
func (r *Resource) parseBlob(segments []string) ([]string, error) {
	switch {
	case len(segments) > 0 && segments[0] == "blobs":
		segments = segments[1:]
	case len(segments) > 1 && segments[0] == "compressed-blobs":
		if segments[1] != "zstd" {
			return nil, fmt.Errorf("%w: compressor %.50q is not supported, use zstd", ErrInvalidName, segments[1])
		}
		r.Compressor, segments = repb.Compressor_ZSTD, segments[2:]
	default:
		return nil, fmt.Errorf("%w: neither blobs nor compressed-blobs where it must be", ErrInvalidName)
	}
	fn := digest.SHA256
	if len(segments) > 0 && segments[0] == digest.BLAKE3.String() {
		fn, segments = digest.BLAKE3, segments[1:]
	}
	if len(segments) < 2 {
		return nil, fmt.Errorf("%w: it ends before the size", ErrInvalidName)
	}
	size, err := strconv.ParseInt(segments[1], 10, 64)
	if err != nil || strconv.FormatInt(size, 10) != segments[1] {
		return nil, fmt.Errorf("%w: %.50q is not a size", ErrInvalidName, segments[1])
	}
	if r.Digest, err = digest.Parse(fn, segments[0], size); err != nil {
		return nil, err
	}
	return segments[2:], nil
}

// String returns the resource name, without metadata.
func (r Resource) String() string {
	var b strings.Builder
	if r.Instance != "" {
		b.WriteString(r.Instance + "/")
	}
	if r.UUID != "" {
		b.WriteString("uploads/" + r.UUID + "/")
	}
	if r.Compressor == repb.Compressor_ZSTD {
		b.WriteString("compressed-blobs/zstd/")
	} else {
		b.WriteString("blobs/")
	}
	if r.Digest.Function() == digest.BLAKE3 {
		b.WriteString("blake3/")
	}
	b.WriteString(r.Digest.String())
	return b.String()
}

// isUUID reports whether s has the form of a UUID. It ignores the version: a name that is merely
// unique does no harm.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return false
			}
		}
	}
	return true
}

// NewUUID returns a random UUID (RFC 9562, version 4).
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
