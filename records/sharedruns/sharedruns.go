package sharedruns

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/record"
)

const (
	// MaxBytes limits one record. The oldest runs are dropped until it fits.
	MaxBytes = 1<<20 - 1<<10
	// MaxRuns limits the runs of one command.
	MaxRuns = 4
)

// ErrMalformed means that a record or run has an invalid form.
var ErrMalformed = errors.New("record is malformed")

// Reduced returns the digest of an Action that has only the command, platform and salt of a. It
// returns false if the action cannot be encoded.
func Reduced(fn digest.Function, a *repb.Action) (digest.Digest, bool) {
	platform := proto.CloneOf(a.GetPlatform())
	if platform != nil {
		// Clients may list the same properties in a different order. Of several with the same name
		// workers may use the first, so the order of these is kept.
		slices.SortStableFunc(platform.Properties, func(x, y *repb.Platform_Property) int {
			return cmp.Compare(x.GetName(), y.GetName())
		})
	}
	d, _, err := digest.OfMessage(fn, &repb.Action{CommandDigest: a.GetCommandDigest(), Platform: platform, Salt: a.GetSalt()})
	return d, err == nil
}

// Key returns the key for runs of a reduced Action under the same circumstances.
func Key(instance string, reduced digest.Digest, circumstances []byte) record.Key {
	b := reduced.AppendHash(nil)
	b = binary.BigEndian.AppendUint64(b, uint64(reduced.SizeBytes()))
	return record.Key{
		Bucket: names.AccountsBucket, Instance: instance, Digest: digest.Of(reduced.Function(), append(b, circumstances...)),
	}
}

// Encode returns the encoded record. The encoding begins with a hash, because a truncated record
// might otherwise still decode.
func Encode(r *reuse.Record) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(make([]byte, sha256.Size), r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b[sha256.Size:])
	copy(b, sum[:])
	return b, nil
}

// Decode decodes a record. Its errors wrap ErrMalformed.
func Decode(value []byte) (*reuse.Record, error) {
	if len(value) < sha256.Size {
		return nil, ErrMalformed
	}
	sum := sha256.Sum256(value[sha256.Size:])
	if !bytes.Equal(sum[:], value[:sha256.Size]) {
		return nil, ErrMalformed
	}
	r := &reuse.Record{}
	if err := proto.Unmarshal(value[sha256.Size:], r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// Merge returns a record with the run young first, then those earlier runs for which other returns
// true, in their order, up to the limits. It returns false if young alone exceeds the limits.
func Merge(young *reuse.Run, former []*reuse.Run, other func(*reuse.Run) bool) (*reuse.Record, bool) {
	merged := &reuse.Record{Runs: []*reuse.Run{young}}
	size := proto.Size(merged)
	if size > MaxBytes-sha256.Size {
		return nil, false
	}
	for _, m := range former {
		size += proto.Size(&reuse.Record{Runs: []*reuse.Run{m}})
		if len(merged.Runs) == MaxRuns || size > MaxBytes-sha256.Size {
			break
		}
		if other(m) {
			merged.Runs = append(merged.Runs, m)
		}
	}
	return merged, true
}

// sameLooks reports whether two runs looked up the same paths and found the same entries. Other
// entries of the directories may differ.
func sameLooks(a, b *reuse.Directory) bool {
	if (a == nil) != (b == nil) || !bytes.Equal(a.GetNames(), b.GetNames()) {
		return false
	}
	return slices.EqualFunc(a.GetEntries(), b.GetEntries(), func(x, y *reuse.Entry) bool {
		return bytes.Equal(x.GetName(), y.GetName()) && x.GetLooks() == y.GetLooks() &&
			bytes.Equal(x.GetShown(), y.GetShown()) && sameLooks(x.GetDirectory(), y.GetDirectory())
	})
}

// ValidRuns returns the runs of a record that pass CheckRun.
func ValidRuns(fn digest.Function, known *reuse.Record) (runs []*reuse.Run) {
	for _, m := range known.GetRuns() {
		of, err := digest.FromProto(fn, m.GetAction())
		if err == nil && CheckRun(m, of) == nil {
			runs = append(runs, m)
		}
	}
	return runs
}

// CheckRun returns an error that wraps ErrMalformed unless m is a run of a successful action.
func CheckRun(m *reuse.Run, action digest.Digest) error {
	of, err := digest.FromProto(action.Function(), m.GetAction())
	if err != nil {
		return fmt.Errorf("%w: action: %w", ErrMalformed, err)
	}
	if of != action {
		return fmt.Errorf("%w: it is of action %s, want %s", ErrMalformed, of, action)
	}
	if m.GetRoot() == nil {
		return fmt.Errorf("%w: it has no record of the run's reads", ErrMalformed)
	}
	result := &repb.ActionResult{}
	if err := proto.Unmarshal(m.GetResult(), result); err != nil {
		return fmt.Errorf("%w: result: %w", ErrMalformed, err)
	}
	if result.GetExitCode() != 0 {
		return fmt.Errorf("%w: exit code %d", ErrMalformed, result.GetExitCode())
	}
	for _, b := range m.GetBlobs() {
		if _, err := digest.FromProto(action.Function(), b); err != nil {
			return fmt.Errorf("%w: blob: %w", ErrMalformed, err)
		}
	}
	return nil
}
