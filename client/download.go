package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Download writes the outputs of result into dir, which it creates if needed: files, symlinks and
// whole folders, at their paths relative to dir. It replaces an existing file or symlink and never
// writes through it; an existing folder at the path of a file is an error. Everything else in dir
// stays. fn is the digest function of the client.
//
// It writes nothing outside dir: an absolute path, or a path or symlink to the outside, is an
// error, and then nothing is written at all. After an error while writing, written outputs stay,
// but no file has wrong bytes.
func Download(
	ctx context.Context, client *casclient.Client, fn digest.Function, result *repb.ActionResult, dir string,
) error {
	p := &plan{client: client, fn: fn, limit: maxOutputs}
	if err := p.addResult(ctx, result); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := p.write(ctx, root); err != nil {
		return fmt.Errorf("download to %s: %w", dir, err)
	}
	return nil
}

// Output returns an output stream of an ActionResult: the inline content raw, or the blob d.
// Without either it is empty. If both are given and differ, the error is ErrCorrupt. fn is the
// digest function of the client.
func Output(
	ctx context.Context, client *casclient.Client, fn digest.Function, raw []byte, d *repb.Digest,
) ([]byte, error) {
	if d == nil {
		return raw, nil
	}
	of, err := digest.FromProto(fn, d)
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	if len(raw) > 0 {
		if got := digest.Of(fn, raw); got != of {
			return nil, fmt.Errorf("read output %s: inline contents: %w: they are %s", of, cas.ErrCorrupt, got)
		}
		return raw, nil
	}
	if of.IsEmptyBlob() {
		return nil, nil
	}
	b, err := client.Read(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return b, nil
}

// write writes the planned outputs. It creates symlinks last, so that no path of this result goes
// through one.
func (p *plan) write(ctx context.Context, root *os.Root) error {
	for _, dir := range p.dirs {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	if err := p.writeFiles(ctx, root); err != nil {
		return err
	}
	for _, l := range p.links {
		if err := makeWay(root, l.path); err != nil {
			return err
		}
		if err := root.Symlink(l.target, l.path); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles first writes the files with inline or empty content. It fetches each other blob once,
// and copies it to all files that have this content.
func (p *plan) writeFiles(ctx context.Context, root *os.Root) error {
	var wanted []digest.Digest
	byDigest := map[digest.Digest][]plannedFile{}
	for _, f := range p.files {
		if f.digest.IsEmptyBlob() || f.inline != nil {
			if err := writeInline(root, f); err != nil {
				return err
			}
			continue
		}
		if len(byDigest[f.digest]) == 0 {
			wanted = append(wanted, f.digest)
		}
		byDigest[f.digest] = append(byDigest[f.digest], f)
	}
	if len(wanted) == 0 {
		return nil
	}
	// Calls of the callback may overlap. They only read places, and no two of them write the same
	// file.
	return p.client.Fetch(ctx, wanted, func(d digest.Digest, r io.Reader) error {
		return writeCopies(root, byDigest[d], r)
	})
}

func writeInline(root *os.Root, f plannedFile) error {
	return writeFile(root, f, func(w io.Writer) error {
		_, err := w.Write(f.inline)
		return err
	})
}

// writeCopies writes r to the first file, and copies this file to the others.
func writeCopies(root *os.Root, files []plannedFile, r io.Reader) error {
	first := files[0]
	err := writeFile(root, first, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range files[1:] {
		err := writeFile(root, f, func(w io.Writer) error {
			from, err := root.Open(first.path)
			if err != nil {
				return err
			}
			defer func() { _ = from.Close() }()
			_, err = io.Copy(w, from)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes the file f with the data from fill, and removes it if that fails.
func writeFile(root *os.Root, f plannedFile, fill func(io.Writer) error) error {
	if err := makeWay(root, f.path); err != nil {
		return err
	}
	mode := os.FileMode(0o666)
	if f.executable {
		mode = 0o777
	}
	file, err := root.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = fill(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = root.Remove(f.path)
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// makeWay removes a file or symlink at name, and creates the folders above it.
func makeWay(root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder here, but not in the result", name)
	}
	return root.Remove(name)
}
