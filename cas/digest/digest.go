package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
)

// HashSize is the length in bytes of the hash of every supported function.
const HashSize = 32

// MaxSizeBytes is the largest size in a digest: 256 TiB, more than any blob and any file of present
// file systems. Clients can claim any size, and 32,768 claims of this one overflow an int64: sums
// of claimed sizes must stop before.
const MaxSizeBytes = 1 << 48

var (
	// ErrInvalid is wrapped by every error about a malformed digest.
	ErrInvalid = errors.New("invalid digest")
	// Errors for a missing blob, or a missing action result, wrap ErrNotFound.
	ErrNotFound = errors.New("not found")
)

// A Digest names one blob. The zero Digest names none; see IsZero. Digests are comparable with ==.
type Digest struct {
	fn   Function
	hash [HashSize]byte
	size int64
}

// Parse makes a Digest of a lower-case hexadecimal hash and a size in bytes.
// Its errors wrap ErrInvalid.
func Parse(fn Function, hexHash string, sizeBytes int64) (Digest, error) {
	d := Digest{fn: fn, size: sizeBytes}
	if !fn.valid() {
		return Digest{}, fmt.Errorf("%w: digest function %d is not supported", ErrInvalid, fn)
	}
	if len(hexHash) != 2*HashSize {
		return Digest{}, fmt.Errorf("%w: %s hash %.80q has %d characters, want %d",
			ErrInvalid, fn, hexHash, len(hexHash), 2*HashSize)
	}
	var invalid uint64
	for i := 0; i < HashSize; i += 4 {
		word, not := fourBytes(hexHash[2*i:][:8])
		binary.LittleEndian.PutUint32(d.hash[i:], word)
		invalid |= not
	}
	if invalid != 0 {
		return Digest{}, fmt.Errorf("%w: hash %.80q is not lower-case hexadecimal", ErrInvalid, hexHash)
	}
	if sizeBytes < 0 || sizeBytes > MaxSizeBytes {
		return Digest{}, fmt.Errorf("%w: size %d of %s is not between 0 and %d", ErrInvalid, sizeBytes, hexHash, int64(MaxSizeBytes))
	}
	return d, nil
}

// FromHash makes a Digest of the bytes of a hash and a size in bytes. Its errors wrap
// ErrInvalid.
func FromHash(fn Function, hash [HashSize]byte, sizeBytes int64) (Digest, error) {
	if !fn.valid() || sizeBytes < 0 || sizeBytes > MaxSizeBytes {
		return Digest{}, fmt.Errorf("%w: size %d with digest function %d", ErrInvalid, sizeBytes, fn)
	}
	return Digest{fn: fn, hash: hash, size: sizeBytes}, nil
}

// fourBytes returns the bytes that eight lower-case hexadecimal digits stand for, the first one
// lowest; with other characters invalid is not 0. It handles all digits at once, each in a byte of
// a word, and has no branches, because they would be unpredictable in a hash.
func fourBytes(digits string) (value uint32, invalid uint64) {
	const each = 0x0101010101010101 // times a byte: that byte everywhere
	text := binary.LittleEndian.Uint64([]byte(digits))
	letters := text >> 6 & each
	values := text&(0x0f*each) + 9*letters            // at most 24
	isLetter := (values + (0x80-10)*each) >> 7 & each // 1 from 10 on
	expected := values + '0'*each + isLetter*('a'-'0'-10)
	invalid = expected ^ text | values&(0xf0*each)
	pairs := (values<<4 | values>>8) & 0x00ff00ff00ff00ff
	pairs = (pairs | pairs>>8) & 0x0000ffff0000ffff
	return uint32(pairs | pairs>>16), invalid
}

// FromProto checks and converts a digest message; a nil message is invalid.
// Its errors wrap ErrInvalid.
func FromProto(fn Function, m *repb.Digest) (Digest, error) {
	if m == nil {
		return Digest{}, fmt.Errorf("%w: digest is not set", ErrInvalid)
	}
	return Parse(fn, m.GetHash(), m.GetSizeBytes())
}

// Of returns the digest of b.
func Of(fn Function, b []byte) Digest {
	if fn == SHA256 { // without allocations
		return Digest{fn: fn, hash: sha256.Sum256(b), size: int64(len(b))}
	}
	h := NewHasher(fn)
	_, _ = h.Write(b)
	return h.Digest()
}

// OfMessage marshals m deterministically and returns the bytes and their digest.
func OfMessage(fn Function, m proto.Message) (Digest, []byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return Digest{}, nil, fmt.Errorf("marshal %T: %w", m, err)
	}
	return Of(fn, b), b, nil
}

// OfReduced returns the digest of an Action that keeps only command_digest and platform of a: the
// key of Buildbarn's caches of profiles and statistics. It is zero where a cannot be encoded.
func OfReduced(fn Function, a *repb.Action) Digest {
	d, _, err := OfMessage(fn, &repb.Action{CommandDigest: a.GetCommandDigest(), Platform: a.GetPlatform()})
	if err != nil {
		return Digest{}
	}
	return d
}

// OfReader returns the digest of all that r still holds.
func OfReader(fn Function, r io.Reader) (Digest, error) {
	h := NewHasher(fn)
	if _, err := io.Copy(h, r); err != nil {
		return Digest{}, err
	}
	return h.Digest(), nil
}

// Function returns the digest function.
func (d Digest) Function() Function { return d.fn }

// Hash returns the hash in lower-case hexadecimal.
func (d Digest) Hash() string {
	var buffer [2 * HashSize]byte
	return string(hex.AppendEncode(buffer[:0], d.hash[:]))
}

// AppendHash appends the HashSize bytes of the hash to b.
func (d Digest) AppendHash(b []byte) []byte { return append(b, d.hash[:]...) }

// SizeBytes returns the size of the blob.
func (d Digest) SizeBytes() int64 { return d.size }

// IsZero reports whether d names no blob.
func (d Digest) IsZero() bool { return d == Digest{} }

// IsEmptyBlob reports whether d names the blob of no bytes, which every REv2
// storage holds without an upload.
func (d Digest) IsEmptyBlob() bool { return d.size == 0 && d.fn.valid() && d == d.fn.Empty() }

// Proto returns d as a message.
func (d Digest) Proto() *repb.Digest {
	return &repb.Digest{Hash: d.Hash(), SizeBytes: d.size}
}

// String returns "<hash>/<size>", the form that REv2 uses in resource names.
func (d Digest) String() string {
	var buffer [2*HashSize + len("/-9223372036854775808")]byte
	return string(d.AppendString(buffer[:0]))
}

// AppendString appends what String returns.
func (d Digest) AppendString(b []byte) []byte {
	return strconv.AppendInt(append(hex.AppendEncode(b, d.hash[:]), '/'), d.size, 10)
}

// Text formats a message as HASH/SIZE, even if it is not a valid digest; nil is empty.
func Text(m *repb.Digest) string {
	if m == nil {
		return ""
	}
	return m.GetHash() + "/" + strconv.FormatInt(m.GetSizeBytes(), 10)
}

// BlobName returns "blobs/<hash>/<size>", with the function before the hash unless it is SHA-256:
// REv2's name of a blob in resource names, and in a PreconditionFailure of type MISSING.
func (d Digest) BlobName() string {
	if d.fn == SHA256 {
		return "blobs/" + d.String()
	}
	return "blobs/" + d.fn.String() + "/" + d.String()
}

// A Hasher computes the digest of the written bytes. Write never fails.
type Hasher struct {
	fn   Function
	hash hash.Hash
	size int64
}

// NewHasher returns a Hasher that has seen no bytes. It panics on an invalid
// function, which Parse and FunctionFromProto never let in.
func NewHasher(fn Function) *Hasher { return &Hasher{fn: fn, hash: fn.newHash()} }

// Write adds p.
func (h *Hasher) Write(p []byte) (int, error) {
	h.size += int64(len(p))
	return h.hash.Write(p)
}

// SizeBytes returns the number of bytes written.
func (h *Hasher) SizeBytes() int64 { return h.size }

// Digest returns the digest of the bytes written so far.
func (h *Hasher) Digest() Digest {
	d := Digest{fn: h.fn, size: h.size}
	h.hash.Sum(d.hash[:0])
	return d
}

// Distinct returns ds without repetitions.
func Distinct(ds []Digest) []Digest {
	seen := make(map[Digest]struct{}, len(ds))
	once := make([]Digest, 0, len(ds))
	for _, d := range ds {
		if _, again := seen[d]; !again {
			seen[d] = struct{}{}
			once = append(once, d)
		}
	}
	return once
}
