package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// hashBufferBytes is the size of a read.
const hashBufferBytes = 128 << 10

// A Mount places the contents of the local folder Dir at Prefix in the input root. Prefix is
// slash-separated, relative and free of "." and ".."; "" is the root itself. Dir may be a symlink
// to a folder.
type Mount struct {
	Prefix string
	Dir    string
}

// Inputs are an input root that Scan made from local folders.
type Inputs struct {
	// Root is the digest of the topmost Directory message.
	Root digest.Digest
	// Blobs are the Directory messages and the files below Root, each digest once, directories
	// first. The empty blob is omitted, because every storage has it.
	Blobs []casclient.Blob
	// Files is the number of files, and Bytes their total size. A file that occurs twice counts
	// twice. Directories and symlinks do not count.
	Files int
	Bytes int64
	// Took is the duration of Scan.
	Took time.Duration
}

// Scan makes an input root of the folders of mounts. It hashes several files concurrently. It
// merges folders of several mounts at the same path; any other path may come from only one mount.
// Symlinks stay symlinks, and a file is executable if any user may execute it. Anything except
// files, folders and symlinks is an error. So is a name or a symlink target that is not UTF-8,
// which REv2 cannot represent.
//
// progress may be nil. It gets the number of files and bytes hashed so far, for the last time at
// the end. Calls of it do not overlap.
func Scan(
	ctx context.Context, fn digest.Function, mounts []Mount, progress func(files int, bytes int64),
) (*Inputs, error) {
	began := time.Now()
	if progress == nil {
		progress = func(int, int64) {}
	}
	s := &scanner{fn: fn, progress: progress}
	root := &folder{}
	if err := s.walk(ctx, root, mounts); err != nil {
		return nil, err
	}
	progress(int(s.files.Load()), s.bytes.Load())
	e := &encoder{fn: fn, seen: map[digest.Digest]struct{}{fn.Empty(): {}}}
	d, err := e.encode(root, "")
	if err != nil {
		return nil, err
	}
	e.addFiles(s.hashed)
	return &Inputs{
		Root:  d,
		Blobs: e.blobs,
		Files: int(s.files.Load()),
		Bytes: s.bytes.Load(),
		Took:  time.Since(began),
	}, nil
}

// A scanner walks folders in one goroutine, which also reports progress. Other goroutines hash
// files.
type scanner struct {
	fn       digest.Function
	progress func(files int, bytes int64)
	hashers  *errgroup.Group
	hashed   []*hashedFile // only the walking goroutine appends

	files, bytes atomic.Int64 // hashed so far
}

// A hashedFile is a file with its digest. The digest belongs to the hashing goroutine until all
// hashers are done.
type hashedFile struct {
	path   string
	digest digest.Digest
}

// walk reads all mounts below root and waits until every file is hashed.
func (s *scanner) walk(ctx context.Context, root *folder, mounts []Mount) error {
	hashers, ctx := errgroup.WithContext(ctx)
	hashers.SetLimit(2 * runtime.NumCPU())
	s.hashers = hashers
	walked := s.walkMounts(ctx, root, mounts)
	// An unreadable file cancels the walk, so the hasher's error is the cause.
	if err := hashers.Wait(); err != nil {
		return err
	}
	return walked
}

func (s *scanner) walkMounts(ctx context.Context, root *folder, mounts []Mount) error {
	for _, m := range mounts {
		at, err := root.descend(m.Prefix)
		if err != nil {
			return fmt.Errorf("mount %s at %q: %w", m.Dir, m.Prefix, err)
		}
		if err := s.walkFolder(ctx, at, m.Dir); err != nil {
			return err
		}
	}
	return nil
}

// walkFolder adds the contents of the local folder dir to f, and everything below it.
func (s *scanner) walkFolder(ctx context.Context, f *folder, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("scan %s: %w", dir, err)
		}
		path := filepath.Join(dir, entry.Name())
		if err := s.add(ctx, f, path, entry); err != nil {
			return err
		}
	}
	return nil
}

// add adds one entry of a local folder to f.
func (s *scanner) add(ctx context.Context, f *folder, path string, entry os.DirEntry) error {
	name := entry.Name()
	if err := requireUTF8("name", name); err != nil {
		return fmt.Errorf("scan %s: %w", path, err)
	}
	switch kind := entry.Type(); {
	case kind.IsDir():
		return s.walkFolder(ctx, f.child(name), path)
	case kind.IsRegular():
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		h := &hashedFile{path: path}
		s.hashed = append(s.hashed, h)
		f.files = append(f.files, fileEntry{
			hashedFile: h,
			node:       &repb.FileNode{Name: name, IsExecutable: info.Mode()&0o111 != 0},
		})
		s.hashers.Go(func() error { return s.hash(ctx, h) })
		s.progress(int(s.files.Load()), s.bytes.Load())
		return nil
	case kind&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if err := requireUTF8("target", target); err != nil {
			return fmt.Errorf("scan %s: %w", path, err)
		}
		f.links = append(f.links, &repb.SymlinkNode{Name: name, Target: target})
		return nil
	default:
		return fmt.Errorf("scan %s: is a %s, but an input can only be a file, folder or symlink",
			path, describe(kind))
	}
}

// hash fills in h.digest.
func (s *scanner) hash(ctx context.Context, h *hashedFile) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("scan %s: %w", h.path, err)
	}
	file, err := os.Open(h.path)
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	defer func() { _ = file.Close() }()
	hasher := digest.NewHasher(s.fn)
	buffer := make([]byte, hashBufferBytes)
	// Without the wrapper, CopyBuffer would use the file's WriteTo and ignore the buffer.
	if _, err := io.CopyBuffer(hasher, contextReader{ctx, file}, buffer); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	h.digest = hasher.Digest()
	s.files.Add(1)
	s.bytes.Add(h.digest.SizeBytes())
	return nil
}

// A contextReader returns an error once its context has ended, so that hashing a large file stops.
type contextReader struct {
	ctx context.Context // of the call that made the reader
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// describe names the type of a file that is neither regular nor a folder nor a symlink.
func describe(kind os.FileMode) string {
	switch {
	case kind&os.ModeSocket != 0:
		return "socket"
	case kind&os.ModeNamedPipe != 0:
		return "named pipe"
	case kind&os.ModeDevice != 0:
		return "device"
	}
	return "special file (" + kind.String() + ")"
}
