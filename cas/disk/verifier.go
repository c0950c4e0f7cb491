package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// A Verifier knows the verified blobs of a Store, and verifies the others. Its methods may be
// called concurrently.
type Verifier struct {
	files  *blobs
	checks *checker
	every  time.Duration // Options.VerifyEvery
}

// Vouch begins a Vouching, which covers all uses from now on.
func (v *Verifier) Vouch() *Vouching {
	began := v.files.count(damaged)
	return &Vouching{by: v, began: began, former: began, left: v.files.count(unproven), used: map[version]use{}}
}

// fresh reports whether the proof is still recent enough, if no one changed the file.
func (v *Verifier) fresh(p proof) bool {
	if p.at == 0 || p.doubt || v.every < 0 {
		return false
	}
	return !p.ahead() && p.age() <= v.every
}

// unchanged reports whether ver is in its place, was recently verified, and has not been changed
// since.
func (v *Verifier) unchanged(ver version) bool {
	generation, known, ok := v.files.pinProof(ver.digest)
	if !ok {
		return false
	}
	defer v.files.unpin(ver.digest)
	if generation != ver.generation || !v.fresh(known) {
		return false
	}
	return v.hasMark(ver.digest, known.mark)
}

// notice checks for changes of the file of d by others. The caller is about to use the file: an
// earlier change does not count against the caller. The file is verified before anybody relies on
// it. notice ignores a change after which another one might leave the same mark; that one counts.
func (v *Verifier) notice(d digest.Digest) {
	generation, known, ok := v.files.look(d)
	if !ok || known.mark == 0 || v.hasMark(d, known.mark) {
		return
	}
	v.files.verify(d)
	defer v.files.endVerify(d)
	if m, settled, err := tamper.SettledMarkOf(v.files.path(d)); err == nil && settled {
		v.files.notice(d, generation, m)
	}
}

// hasMark reports whether the file of d has a mark.
func (v *Verifier) hasMark(d digest.Digest, want uint64) bool {
	m, err := tamper.MarkOf(v.files.path(d))
	return err == nil && m == want
}

// verifyDoubtful verifies d if it exists and is not verified. A verification counts if it is
// recent, or began after that many others.
func (v *Verifier) verifyDoubtful(ctx context.Context, d digest.Digest, after uint64) (present bool, err error) {
	if d.IsEmptyBlob() {
		return true, v.files.mendEmpty()
	}
	for {
		generation, known, ok := v.files.pinProof(d)
		if !ok {
			// It is known soon whether a leaving one is damaged.
			if left, err := v.files.left(ctx, d); !left {
				return false, err
			}
			continue
		}
		if v.fresh(known) && v.hasMark(d, known.mark) {
			v.files.unpin(d)
			return true, nil
		}
		c := v.ask(version{d, generation}, known)
		if c == nil {
			continue
		}
		later, err := v.checks.wait(ctx, c, after)
		if err != nil || later {
			return err == nil, err
		}
	}
}

// ask joins the check of ver, or makes it, and takes over the pin of the caller, which leaves the
// check. It is nil if one has ended since the caller read the proof, so that ver is fresh by now.
func (v *Verifier) ask(ver version, known proof) *check {
	c := v.checks.ask(ver)
	if generation, now, _ := v.files.look(ver.digest); generation != ver.generation || now == known || !v.fresh(now) {
		return c
	}
	v.checks.leave(c)
	return nil
}

// ContainsSound reports whether d exists and is verified, and counts it as used. It verifies an
// unverified blob; a damaged one is missing from then on.
func (v *Verifier) ContainsSound(ctx context.Context, d digest.Digest) (bool, error) {
	if !v.files.used(d) {
		return false, nil
	}
	return v.verifyLate(ctx, d)
}

// verifyLate verifies d if it exists and is not verified, and reports whether it exists then. If
// ctx ends first the verification goes on: a client that sends d has less patience than a large
// blob takes, each time that it tries again.
func (v *Verifier) verifyLate(ctx context.Context, d digest.Digest) (bool, error) {
	present, err := v.verifyDoubtful(ctx, d, 0)
	if errors.Is(err, cas.ErrCorrupt) {
		return d.IsEmptyBlob(), nil // which was mended
	}
	if err != nil && ctx.Err() != nil {
		v.carryOn(d)
	}
	return present, err
}

// carryOn verifies d in the background, without a caller.
func (v *Verifier) carryOn(d digest.Digest) {
	generation, known, ok := v.files.pinProof(d)
	switch {
	case !ok:
	case v.fresh(known) && v.hasMark(d, known.mark):
		v.files.unpin(d)
	default:
		if c := v.ask(version{d, generation}, known); c != nil {
			v.checks.carryOn(c)
		}
	}
}

// pinSound is ContainsSound, but leaves d pinned.
func (v *Verifier) pinSound(ctx context.Context, d digest.Digest) (bool, error) {
	if !v.files.pin(d) {
		return false, nil
	}
	sound, err := v.verifyLate(ctx, d)
	if !sound {
		v.files.unpin(d)
	}
	return sound, err
}

// Verify reads and hashes d now. For a damaged blob, which is set aside, the error is a
// *DamagedError; for a missing one it is a *MissingError. It does not count d as used, and does not
// prevent its eviction.
func (v *Verifier) Verify(ctx context.Context, d digest.Digest) error {
	if d.IsEmptyBlob() {
		return v.files.mendEmpty()
	}
	for {
		generation, _, ok := v.files.look(d)
		if !ok {
			return &cas.MissingError{Digests: []digest.Digest{d}}
		}
		err := v.checks.now(ctx, version{d, generation})
		if !errors.Is(err, errReplaced) {
			return err
		}
	}
}

// read returns the bytes of d that from yields with the proof of their read. If they are wrong, it
// verifies d, and reads again if d is right.
func (v *Verifier) read(ctx context.Context, d digest.Digest, from func() ([]byte, proof, error)) ([]byte, error) {
	for range 2 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read blob %s: %w", d, err)
		}
		b, known, err := from()
		if errors.Is(err, cas.ErrNotFound) {
			return nil, &cas.MissingError{Digests: []digest.Digest{d}}
		}
		if err == nil && digest.Of(d.Function(), b) == d {
			v.noteSound(d, known)
			return b, nil
		}
		if failed := v.Verdict(ctx, d); failed != nil {
			return nil, failed
		}
		if err != nil {
			return nil, fmt.Errorf("read blob %s: %w", d, err)
		}
	}
	return nil, fmt.Errorf("read blob %s: %w: it changes", d, cas.ErrCorrupt)
}

// Reading is called when all of a file of d is about to be read. The reader calls sound if the
// bytes were right, before it closes the file.
func (v *Verifier) Reading(d digest.Digest, file *os.File) (sound func(), err error) {
	r, err := beginReading(file.Fd())
	return func() { v.noteSound(d, r.proof()) }, err
}

// Verdict verifies d after a caller has read wrong bytes of it. A damaged one is missing from now
// on.
func (v *Verifier) Verdict(ctx context.Context, d digest.Digest) error {
	err := v.Verify(ctx, d)
	if errors.Is(err, cas.ErrCorrupt) {
		return &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return err
}

// noteSound records that a caller has read and hashed a file of d with this mark. If the file was
// evicted or changed in the meantime, this says nothing about the present one.
func (v *Verifier) noteSound(d digest.Digest, p proof) {
	v.checks.count(d.SizeBytes())
	generation, _, _ := v.files.look(d)
	if !v.files.proveRead(d, generation, p, noteAgain) {
		return
	}
	if v.hasMark(d, p.mark) {
		v.files.prove(d, generation, p)
	}
}

// noteAgain is how many seconds older than the known proof a verification may be.
const noteAgain = 60

// verifiedSince reports whether d was verified at that time or later, and not changed afterwards.
func (v *Verifier) verifiedSince(d digest.Digest, since time.Time) bool {
	_, known, _ := v.files.look(d)
	return !known.doubt && !known.ahead() && int64(known.at) >= since.Unix() && v.hasMark(d, known.mark)
}
