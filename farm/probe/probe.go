package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// IsSynchronized reports whether something sets the clock of this machine by others, as the kernel
// knows it (adjtimex).
func IsSynchronized() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, fmt.Errorf("adjtimex: %w", err)
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, nil
}

// FileSystem returns the type of the file system that a folder is on, such as ext4.
func FileSystem(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // mount points have none
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dir, err)
	}
	mounts, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	found, longest := "", -1
	for _, m := range mounts {
		// btrfs has other numbers in files than in mounts: the mount point decides then.
		if !paths.Below(dir, m.Point) || m.Device != device && m.Type != "btrfs" || len(m.Point) < longest {
			continue
		}
		found, longest = m.Type, len(m.Point)
	}
	if longest < 0 {
		return "", fmt.Errorf("%s is on no mount that is seen here", dir)
	}
	return found, nil
}

// Blobs are the storage.
type Blobs interface {
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	Upload(ctx context.Context, blobs []client.Blob, progress func(d digest.Digest, bytes int64)) error
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
}

// A Speed is how fast storage answers, and takes and gives a blob of Bytes.
type Speed struct {
	RoundTrip, Upload, Download time.Duration
	Bytes                       int
}

// Patience limits the calls of Measure: one that only asks, and each that moves the blob.
type Patience struct{ Answer, Transfer time.Duration }

// Measure asks for a blob that nobody has, uploads it, and reads it again. The storage evicts it some
// time, as others.
func Measure(ctx context.Context, blobs Blobs, bytes int, most Patience) (s Speed, err error) {
	s.Bytes = bytes
	content := make([]byte, bytes)
	_, _ = rand.Read(content) // it never fails
	d := digest.Of(digest.SHA256, content)
	for _, step := range []struct {
		what string
		took *time.Duration
		most time.Duration
		do   func(ctx context.Context) error
	}{
		{"ask for a blob", &s.RoundTrip, most.Answer, func(ctx context.Context) error {
			_, err := blobs.FindMissing(ctx, []digest.Digest{d})
			return err
		}},
		{"upload", &s.Upload, most.Transfer, func(ctx context.Context) error {
			return blobs.Upload(ctx, []client.Blob{client.BytesBlob(d, content)}, nil)
		}},
		{"download", &s.Download, most.Transfer, func(ctx context.Context) error { _, err := blobs.Read(ctx, d); return err }},
	} {
		start := time.Now()
		call, cancel := context.WithTimeout(ctx, step.most)
		err := step.do(call)
		cancel()
		if err != nil {
			return s, fmt.Errorf("%s: %w", step.what, err)
		}
		*step.took = time.Since(start)
	}
	return s, nil
}
