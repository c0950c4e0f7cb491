package remote

import (
	"context"
	"errors"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Mount places what is in the local folder Dir at Prefix in the input root.
// Prefix is slash-separated and relative; "" is the root itself.
type Mount struct {
	Prefix string
	Dir    string
}

// Inputs are an input root that Scan made of local folders.
type Inputs struct {
	// Root is the digest of the topmost Directory message.
	Root digest.Digest
	// Blobs are the Directory messages and the files below Root, each digest once.
	Blobs []cas.Blob
	// Files counts the files, and Bytes sums their sizes; a file that is there
	// twice counts twice. Directories and symlinks are not counted.
	Files int
	Bytes int64
	// Took is how long Scan ran.
	Took time.Duration
}

// Scan reads the folders of mounts into an input root.
func Scan(
	ctx context.Context, fn digest.Function, mounts []Mount, progress func(files int, bytes int64),
) (*Inputs, error) {
	return nil, errors.New("scan: not built yet")
}
