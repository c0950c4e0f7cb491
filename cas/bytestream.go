package cas

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

// errInvalidName is wrapped by every error about a resource name that neither its digest nor its instance
// name is to blame for.
var errInvalidName = errors.New("invalid name")

// maxNameLength bounds resource names; the longest useful one is some 200 bytes
// plus the instance name and metadata.
const maxNameLength = 4096

// resourceHeader is the header that may repeat the resource name of a
// ByteStream call (REv2, "ContentAddressableStorage").
const resourceHeader = "build.bazel.remote.execution.v2.resource-name"

// A resource is what a ByteStream resource name says (REv2,
// "ContentAddressableStorage"). It is comparable, so it can key a table.
type resource struct {
	instance   string
	uuid       string // of an upload; empty when reading
	compressor repb.Compressor_Value
	digest     digest.Digest
}

// parseRead takes "[instance/]blobs/[function/]hash/size" or the compressed form
// apart. Its errors wrap errInvalidName, instance.ErrInvalid or digest.ErrInvalid.
func parseRead(name string) (resource, error) {
	r, segments, err := splitInstance(name)
	if err != nil {
		return resource{}, err
	}
	rest, err := r.parseBlob(segments)
	if err != nil {
		return resource{}, fmt.Errorf("resource %.300q: %w", name, err)
	}
	if len(rest) > 0 {
		return resource{}, fmt.Errorf("%w: resource %.300q goes on after the size", errInvalidName, name)
	}
	return r, nil
}

// parseWrite takes "[instance/]uploads/uuid/blobs/[function/]hash/size[/metadata]"
// or the compressed form apart; the metadata, of any number of segments, is
// dropped. Its errors are those of parseRead.
func parseWrite(name string) (resource, error) {
	r, segments, err := splitInstance(name)
	if err != nil {
		return resource{}, err
	}
	if len(segments) < 2 || segments[0] != "uploads" || !isUUID(segments[1]) {
		return resource{}, fmt.Errorf("%w: resource %.300q is not [instance/]uploads/<uuid>/…",
			errInvalidName, name)
	}
	r.uuid = segments[1]
	if _, err := r.parseBlob(segments[2:]); err != nil {
		return resource{}, fmt.Errorf("resource %.300q: %w", name, err)
	}
	return r, nil
}

// splitInstance parses what is before the first reserved segment, and returns
// the segments from there.
func splitInstance(name string) (resource, []string, error) {
	if len(name) > maxNameLength {
		return resource{}, nil, fmt.Errorf("%w: resource name of %d bytes", errInvalidName, len(name))
	}
	segments := strings.Split(name, "/")
	i := slices.IndexFunc(segments, instance.Reserved)
	if i < 0 {
		return resource{}, nil, fmt.Errorf("%w: resource %.300q names no blob", errInvalidName, name)
	}
	r := resource{instance: strings.Join(segments[:i], "/")}
	if i > 0 && r.instance == "" {
		return resource{}, nil, fmt.Errorf("%w: resource %.300q begins with a slash", errInvalidName, name)
	}
	return r, segments[i:], instance.Check(r.instance)
}

// parseBlob parses from "blobs" or "compressed-blobs" to the size, and returns
// the segments after it.
func (r *resource) parseBlob(segments []string) ([]string, error) {
	switch {
	case len(segments) > 0 && segments[0] == "blobs":
		segments = segments[1:]
	case len(segments) > 1 && segments[0] == "compressed-blobs":
		if segments[1] != "zstd" {
			return nil, fmt.Errorf("%w: compressor %.50q is not supported, use zstd", errInvalidName, segments[1])
		}
		r.compressor, segments = repb.Compressor_ZSTD, segments[2:]
	default:
		return nil, fmt.Errorf("%w: neither blobs nor compressed-blobs where it must be", errInvalidName)
	}
	fn := digest.SHA256
	if len(segments) > 0 && segments[0] == digest.BLAKE3.String() {
		fn, segments = digest.BLAKE3, segments[1:]
	}
	if len(segments) < 2 {
		return nil, fmt.Errorf("%w: it ends before the size", errInvalidName)
	}
	size, err := strconv.ParseInt(segments[1], 10, 64)
	if err != nil || strconv.FormatInt(size, 10) != segments[1] {
		return nil, fmt.Errorf("%w: %.50q is not a size", errInvalidName, segments[1])
	}
	if r.digest, err = digest.Parse(fn, segments[0], size); err != nil {
		return nil, err
	}
	return segments[2:], nil
}

// String returns the resource name, without metadata.
func (r resource) String() string {
	var b strings.Builder
	if r.instance != "" {
		b.WriteString(r.instance + "/")
	}
	if r.uuid != "" {
		b.WriteString("uploads/" + r.uuid + "/")
	}
	if r.compressor == repb.Compressor_ZSTD {
		b.WriteString("compressed-blobs/zstd/")
	} else {
		b.WriteString("blobs/")
	}
	if r.digest.Function() == digest.BLAKE3 {
		b.WriteString("blake3/")
	}
	b.WriteString(r.digest.String())
	return b.String()
}

// isUUID reports whether s has the form of a UUID. Its version is not looked at:
// a name that merely is unique does no harm.
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

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
