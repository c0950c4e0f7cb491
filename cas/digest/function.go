package digest

import (
	"crypto/sha256"
	"fmt"
	"hash"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/zeebo/blake3"
)

// A Function is a digest function. The zero Function is none.
type Function uint8

// The supported functions.
const (
	SHA256 Function = iota + 1
	BLAKE3
)

// Functions lists the supported functions, the preferred one first.
func Functions() []Function { return []Function{SHA256, BLAKE3} }

// The digests of the blob of no bytes, computed once.
var emptySHA256, emptyBLAKE3 = Of(SHA256, nil), Of(BLAKE3, nil)

// FunctionFromProto converts a request's digest_function. UNKNOWN means that the length of the hash
// determines it (REv2, "digest_function" of each request), which for 64 characters is SHA-256.
// Errors wrap ErrInvalid.
func FunctionFromProto(v repb.DigestFunction_Value) (Function, error) {
	switch v {
	case repb.DigestFunction_UNKNOWN, repb.DigestFunction_SHA256:
		return SHA256, nil
	case repb.DigestFunction_BLAKE3:
		return BLAKE3, nil
	}
	return 0, fmt.Errorf("%w: digest function %s is not supported, use SHA256 or BLAKE3", ErrInvalid, v)
}

// Proto returns the function's REv2 value.
func (f Function) Proto() repb.DigestFunction_Value {
	switch f {
	case SHA256:
		return repb.DigestFunction_SHA256
	case BLAKE3:
		return repb.DigestFunction_BLAKE3
	}
	return repb.DigestFunction_UNKNOWN
}

// String returns the lower-case name that REv2 resource names use.
func (f Function) String() string {
	switch f {
	case SHA256:
		return "sha256"
	case BLAKE3:
		return "blake3"
	}
	return fmt.Sprintf("function(%d)", uint8(f))
}

// Empty returns the digest of the blob of no bytes.
func (f Function) Empty() Digest {
	if f == BLAKE3 {
		return emptyBLAKE3
	}
	return emptySHA256
}

func (f Function) valid() bool { return f == SHA256 || f == BLAKE3 }

func (f Function) newHash() hash.Hash {
	switch f {
	case SHA256:
		return sha256.New()
	case BLAKE3:
		return blake3.New()
	}
	panic(fmt.Sprintf("digest: no such function: %d", uint8(f)))
}
