package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// The cost of each fall-back.
const (
	costOfLinks = "every file of an input root is fetched and linked before its command starts, " +
		"and nothing is known of what the command reads"
	costOfBare = "a command that writes into an input, as root can, changes it for the other roots that share it: " +
		"all their actions fail then"
	costOfNoImages = "every first look at an input goes through this process"
	imagesAdvice   = "use Linux 6.12 or later with EROFS_FS_BACKED_BY_FILE and FANOTIFY, run as root, " +
		"and keep the store on ext4, xfs or btrfs"
)

// probe makes try test a root of this FS as o wants it, and with the next fall-back if the machine
// refuses it.
func (f *FS) probe(o Options, try func() error) error {
	var lacks error
	if o.Method != HardLink {
		err := f.probeFUSE(!o.DisablePassthrough, try)
		if err == nil {
			return nil
		}
		if o.Method == FUSE {
			return fmt.Errorf("%w: %w; hard links do without it, but then %s; %s",
				ErrUnavailable, err, costOfLinks, advice(err))
		}
		if _, isRefused := refusedMount(err); !isRefused {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		lacks = err
	}
	return f.probeLinks(!o.DisableOverlay, lacks, try)
}

// refusedMount returns the mount that the machine refuses, so that something else must take its
// place; false: it may succeed at another time, or err has another cause.
func refusedMount(err error) (m *mounts.Error, isRefused bool) {
	if !errors.As(err, &m) {
		return nil, false
	}
	for _, lack := range []error{unix.ENOSPC, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EINTR} {
		if errors.Is(err, lack) {
			return nil, false
		}
	}
	return m, true
}

// probeFUSE tries FUSE with passthrough if that is wanted, and otherwise, or if the kernel refuses
// it, without.
func (f *FS) probeFUSE(passthrough bool, try func() error) error {
	f.means = fuseCached
	if passthrough {
		f.means = fusePassthrough
	}
	err := try()
	if refused := (*passthroughError)(nil); errors.As(err, &refused) {
		f.log.Warn("no kernel passthrough for input roots", missing(err),
			zap.String("costs", fuse.CostOfCached), zap.String("remedy", fuse.PassthroughAdvice))
		f.means = fuseCached
		err = try()
	}
	return err
}

// probeLinks tries hard links, with an overlay and without. It warns that they replace FUSE, or
// that the overlay is missing.
func (f *FS) probeLinks(overlay bool, lacks error, try func() error) error {
	f.means = bareLinks
	if overlay {
		f.means = overLinks
	}
	if err := f.openLinks(); err != nil {
		return fmt.Errorf("hard links: %w", err)
	}
	err := try()
	var bare error
	if m, isRefused := refusedMount(err); overlay && isRefused && m.What == "overlay" {
		f.means, bare = bareLinks, err
		if err = f.openLinks(); err == nil {
			err = try()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(lacks, err))
	}
	if lacks != nil {
		f.log.Warn("no FUSE for input roots: they are folders of hard links", missing(lacks),
			zap.String("costs", costOfLinks), zap.String("remedy", advice(lacks)))
	}
	if bare != nil {
		f.log.Warn("no overlayfs for input roots: commands can change inputs in place", missing(bare),
			zap.String("costs", costOfBare), zap.String("remedy", advice(bare)))
	}
	return nil
}

func missing(err error) zap.Field { return zap.NamedError("missing", err) }

// openLinks makes the store of linked files.
func (f *FS) openLinks() (err error) {
	f.links, err = link.Open(link.Options{
		Dir: f.linkDir(), MaxBytes: f.linkBytes, Bare: !f.means.overlay(), Trash: f.trash, Log: f.log, Damaged: f.damaged,
	})
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(f.linkDir(), linkedName), 0o700)
}

// passthroughError is the error of a root that works except for passthrough.
type passthroughError struct{ err error }

func (e *passthroughError) Error() string { return "kernel passthrough: " + e.err.Error() }
func (e *passthroughError) Unwrap() error { return e.err }

// probeName is the name of the root that is tried.
const probeName = ".probe"

// tryRoot mounts a root of one file and one directory, uses it as actions do, and drops it.
func (f *FS) tryRoot() error {
	src, err := newProbeSource(f.upperDir)
	if err != nil {
		return err
	}
	defer func() { _ = src.file.Close() }()
	// Open has no context: the probe takes milliseconds and waits for nothing.
	r, err := f.newRoot(context.Background(), RootSpec{Name: probeName, Digest: src.root, Source: src})
	if err != nil {
		return err
	}
	return errors.Join(r.tryOut(src), r.Close())
}

// Check makes a root, uses it as actions do, and drops it. The error names the part that no longer
// works. It takes milliseconds. Only one call at a time is allowed.
func (f *FS) Check() error { return f.tryRoot() }

func (r *Root) tryOut(src *probeSource) error {
	passthrough := r.fs.means == fusePassthrough
	if passthrough {
		if err := r.inputs.TryPassthrough(src.file); err != nil {
			return &passthroughError{err}
		}
	}
	err := r.readProbe()
	if err != nil && passthrough {
		return &passthroughError{err}
	}
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(r.Path(), "dir"), filepath.Join(r.Path(), "moved")); err != nil {
		return &mounts.Error{What: "overlay", Err: fmt.Errorf("move an input directory: %w", err)}
	}
	return nil
}

// advice says how to get the part that a failed mount lacks.
func advice(err error) string {
	var m *mounts.Error
	if !errors.As(err, &m) {
		return "see the error"
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(m.Err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case m.What == "fuse device" && is(unix.ENOENT, unix.ENODEV, unix.ENXIO):
		return "there is no " + mounts.FUSEDevice + ": load the kernel module (modprobe fuse), " +
			"or give the container the device (--device " + mounts.FUSEDevice + ")"
	case m.What == "fuse device" && is(unix.EPERM, unix.EACCES):
		return "" + mounts.FUSEDevice + " may not be opened: run as root, or give the container the device (--device " + mounts.FUSEDevice + ")"
	case is(unix.EPERM, unix.EACCES):
		return "mounting is not allowed: run as root with CAP_SYS_ADMIN (in a container --privileged, " +
			"or --cap-add SYS_ADMIN and a security profile that lets it mount)"
	case m.What == "overlay" && is(unix.ENODEV):
		return "the kernel has no overlayfs: load its module (modprobe overlay)"
	case m.What == "overlay" && is(unix.EXDEV):
		return "the file system of the upper folder keeps no trusted extended attributes: " +
			"put it on ext4, xfs, btrfs or tmpfs"
	case m.What == "overlay" && is(unix.EINVAL):
		return "overlayfs refuses the upper folder or an option: put the folder on ext4, xfs, btrfs or tmpfs " +
			"(not on overlayfs or a network file system), and use Linux 5.10 or later"
	case is(unix.ENOSPC):
		return "there are too many mounts: unmount those that nobody needs, or raise the limit (sysctl fs.mount-max)"
	case m.What == "fuse" && is(unix.ENODEV):
		return "the kernel has no FUSE: load its module (modprobe fuse)"
	}
	return "see the error"
}

// openImages tries images out, and goes without them if they do not work here.
func (f *FS) openImages(blobs BlobFolder, noGathered bool) {
	var err error
	f.images, err = image.Open(image.Options{
		Memory: f.memory, HiddenBytes: f.hiddenBytes, DisableGathered: noGathered,
		Blobs: blobs, PointDir: f.points.dir, Owner: f.owner, Namespaces: f.namespaces, Log: f.log,
	})
	if err == nil {
		err = f.tryImage()
	}
	if err == nil {
		return
	}
	f.log.Warn("no metadata images for input roots", missing(err),
		zap.String("costs", costOfNoImages), zap.String("remedy", imagesAdvice))
	if f.images == nil {
		return
	}
	if err := f.images.Close(); err != nil {
		f.log.Warn("metadata images were not closed", zap.Error(err))
	}
	f.images = nil
}

// tryImage makes an image, uses it in a root as actions do, and drops both.
func (f *FS) tryImage() error {
	src, err := newProbeSource(f.upperDir)
	if err != nil {
		return err
	}
	defer func() { _ = src.file.Close() }()
	if err := f.images.Make("", src.root, src); err != nil {
		return err
	}
	defer func() { _ = f.images.DropAll() }()
	r, err := f.newRoot(context.Background(), RootSpec{Name: probeName, Digest: src.root, Source: src})
	if err != nil {
		return err
	}
	return errors.Join(r.tryOutImage(), r.Close())
}

func (r *Root) tryOutImage() error {
	if err := r.readProbe(); err != nil {
		return err
	}
	if s := r.Stats(); s.FilesRead != 1 {
		return fmt.Errorf("fanotify reported %d opens instead of one", s.FilesRead)
	}
	return nil
}

// readProbe reads the file of a probeSource.
func (r *Root) readProbe() error {
	got, err := os.ReadFile(filepath.Join(r.Path(), "file"))
	if err == nil && string(got) != probeContent {
		err = fmt.Errorf("read %q instead of %q", got, probeContent)
	}
	return err
}

const probeContent = "forerunner\n"

// probeSource is a tree of a file and an empty directory.
type probeSource struct {
	file *os.File // without a name, where the store's blobs are
	root digest.Digest
	dirs map[digest.Digest]*tree.Directory
}

func newProbeSource(dir string) (*probeSource, error) {
	file, err := namelessFile(dir)
	if err != nil {
		return nil, fmt.Errorf("create a nameless file: %w", err)
	}
	s := &probeSource{file: file, dirs: map[digest.Digest]*tree.Directory{}}
	if _, err := s.file.WriteString(probeContent); err != nil {
		_ = s.file.Close()
		return nil, err
	}
	empty := &repb.Directory{}
	root := &repb.Directory{
		Files: []*repb.FileNode{{
			Name:   "file",
			Digest: digest.Of(digest.SHA256, []byte(probeContent)).Proto(),
		}},
		Directories: []*repb.DirectoryNode{{Name: "dir", Digest: s.add(empty).Proto()}},
	}
	s.root = s.add(root)
	return s, nil
}

func namelessFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o444)
	if err == nil {
		return os.NewFile(uintptr(fd), probeName), nil
	}
	file, err := os.CreateTemp(dir, probeName) // not every file system knows O_TMPFILE
	if err == nil {
		err = os.Remove(file.Name())
	}
	return file, err
}

func (s *probeSource) add(m *repb.Directory) digest.Digest {
	// Of a message of our own neither can fail.
	b, _ := proto.Marshal(m)
	d := digest.Of(digest.SHA256, b)
	s.dirs[d], _ = tree.Parse(digest.SHA256, b)
	return d
}

func (s *probeSource) Directory(_ context.Context, d digest.Digest) (*tree.Directory, error) {
	return s.dirs[d], nil
}

func (s *probeSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	return s.dirs[d], true
}

func (s *probeSource) OpenBlob(context.Context, digest.Digest) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))
}
