package image

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

const (
	maxImageEntries = 1 << 20
	maxImageDepth   = 256
	// maxHidden limits the memory for entries that an image does not show, or only in part, each of
	// which counts hiddenBytes besides its texts.
	maxHidden, hiddenBytes = 32 << 20, 256
	imageBuffer            = 1 << 20
)

// imageID is the UUID of an image, by which fanotify names it.
type imageID [16]byte

// image is a mounted EROFS file system with the names and attributes of a subtree at its path, but
// no data: overlayfs takes that from the folder of the store, or, if it is missing there, from the
// FUSE layer. An image that is written at once does not change, and has only what was local then,
// and no symlinks, whose reads would be invisible; cover has the rest. A directory that it shows
// with everything below is opaque, or below an opaque one. A grown image has its whole tree.
type image struct {
	id     imageID
	path   string // from the root, "" for the root itself
	digest digest.Digest
	// members, if not nil, are the subdirectories of the directory at path that a gathered image
	// shows, in order of names; covers has the cover of each. Digest is then keyOf them.
	members []tree.Entry
	covers  []*Cover
	cover   *Cover
	hidden  int64 // bytes of memory that cover takes
	dirs    int   // that it shows
	bytes   int64
	point   string   // mount point
	file    *os.File // without a name: it is freed with its last user; nil if the image is grown
	grown   *grown   // nil: all of it was written at once
	nodes   nodes
	sum     [sha256.Size]byte // of the file's bytes
	said    vouch.Verdict     // whether they are still those
	mark    atomic.Pointer[imageMark]

	shown sync.Mutex              // guards as
	as    map[folder.Owner]string // mount points for other owners than Cache.owner

	// Guarded by Cache.mu.
	users   int    // roots that show it
	lastUse uint64 // of Cache.clock
	retired bool   // to be unmounted by its last user
	lacking int    // roots that read directories which it lacks
}

// nodes know the inodes of an image.
type nodes interface {
	Node(nid uint64) (erofs.Node, error)
	// Redirects calls found with that of each file with data that the image shows.
	Redirects(found func(redirect string)) error
}

// atHand returns a directory if that needs no waiting.
type atHand func(digest.Digest) (*tree.Directory, bool)

// subtree describes the local part of a tree.
type subtree struct {
	blobs  *Blobs
	lookup atHand
	left   int   // entries that may be added
	hidden int64 // bytes for entries that are not shown, or in part
	most   int64 // of them
	dirs   int
	image  *image // that it is for
}

// directory describes d for the image, and the part that the image will not show.
func (s *subtree) directory(d *tree.Directory, depth int) ([]erofs.Entry, *Cover) {
	s.dirs++
	s.left -= d.Len()
	c := &Cover{image: s.image}
	list := make([]erofs.Entry, 0, d.Len())
	cover := func(e tree.Entry, rest *Cover) {
		if s.hidden += int64(hiddenBytes + len(e.Name) + len(e.Target)); s.hidden <= s.most {
			c.below = append(c.below, Covered{cloneEntry(e), rest})
		}
	}
	for i := 0; i < d.Len() && s.hidden <= s.most; i++ {
		e := d.At(i)
		out := s.blobs.show(e)
		switch e.Kind {
		case tree.File:
			if namesNothing(e) {
				cover(e, nil)
				continue
			}
		case tree.Dir:
			child, ok := s.lookup(e.Digest)
			if !ok || child.Len() > s.left || depth == maxImageDepth {
				cover(e, nil)
				continue
			}
			var rest *Cover
			if out.Entries, rest = s.directory(child, depth+1); !rest.Empty() {
				cover(e, rest)
			}
		default:
			cover(e, nil)
			continue
		}
		list = append(list, out)
	}
	c.markOpaque(list)
	return list, c
}

// markOpaque marks those of the shown entries that are directories of which the image shows
// everything, so that overlayfs asks no layer below the image for names in them. If that is all of
// the entries, a directory above them is marked, unless nothing is below the image.
func (c *Cover) markOpaque(list []erofs.Entry) {
	if c.Empty() {
		return
	}
	for i := range list {
		_, inPart := c.Child(list[i].Name)
		list[i].Opaque = !inPart && list[i].Mode&unix.S_IFMT == unix.S_IFDIR
	}
}

// namesNothing reports whether a file has size 0 but not the digest of the empty blob: such a blob
// cannot exist, and an image, which shows empty files without a blob, must not show it.
func namesNothing(e tree.Entry) bool {
	return e.Kind == tree.File && e.Digest.SizeBytes() == 0 && !e.Digest.IsEmptyBlob()
}

// gatherIn describes members for the image.
func (s *subtree) gatherIn(members []tree.Entry) (list []erofs.Entry) {
	for _, e := range members {
		child, ok := s.lookup(e.Digest)
		if !ok || child.Len() > s.left {
			continue
		}
		out := s.blobs.show(e)
		var rest *Cover
		out.Entries, rest = s.directory(child, 1)
		out.Opaque = rest.Empty()
		list = append(list, out)
		s.image.members, s.image.covers = append(s.image.members, e), append(s.image.covers, rest)
	}
	return list
}

// newImage makes an image of the local part of the subtree at p, which is d, or of the members
// there, and mounts it.
func (c *Cache) newImage(p site, d *tree.Directory, atHand atHand) (img *image, err error) {
	path := p.path
	img = &image{path: path, digest: p.digest}
	s := &subtree{
		blobs: &c.blobs, lookup: atHand, left: maxImageEntries,
		most: min(maxHidden, c.mostHidden), image: img,
	}
	top := erofs.Entry{Mode: unix.S_IFDIR | 0o755, MTime: time.Unix(tree.DefaultMTime, 0)}
	if p.members == nil {
		top.Entries, img.cover = s.directory(d, 0)
		top.Opaque = path != "" && img.cover.Empty()
	} else {
		top.Entries = s.gatherIn(p.members)
	}
	if s.hidden > s.most {
		return nil, fmt.Errorf("%w: it lacks more than %d KiB of entries", erofs.ErrTooLarge, s.most>>10)
	}
	if p.members != nil && len(img.members) == 0 {
		return nil, errors.New("none of the directories is local")
	}
	img.dirs, img.hidden = s.dirs, s.hidden
	if _, err := rand.Read(img.id[:]); err != nil {
		return nil, err
	}
	fd, err := unix.Open(c.blobs.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a nameless file in %s: %w", c.blobs.Dir, err)
	}
	file := os.NewFile(uintptr(fd), "image")
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	img.file = file
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(img.file, sum), imageBuffer)
	if img.bytes, err = erofs.Write(w, nest(path, top), c.imageOptions(img.id)); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("write image: %w", err)
	}
	sum.Sum(img.sum[:0])
	if err := img.mount(c.point()); err != nil {
		return nil, err
	}
	if err := img.markNow(); err != nil {
		return nil, errors.Join(err, img.close())
	}
	img.said.Right(time.Now())
	if img.nodes, err = erofs.OpenImage(img.file); err != nil {
		return nil, errors.Join(err, img.close())
	}
	return img, nil
}

func (c *Cache) imageOptions(id imageID) erofs.Options {
	return erofs.Options{UUID: id, Epoch: time.Unix(tree.DefaultMTime, 0), UID: c.owner.UID, GID: c.owner.GID}
}

// nest puts top into directories, so that it is at path.
func nest(path string, top erofs.Entry) *erofs.Entry {
	if path == "" {
		return &top
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	top.Name = name
	return nest(parent, erofs.Entry{Mode: top.Mode, MTime: top.MTime, Entries: []erofs.Entry{top}})
}

func (img *image) mount(point string) error {
	img.point = filepath.Join(point, "lower")
	if err := os.MkdirAll(img.point, 0o755); err != nil {
		return err
	}
	source := fmt.Sprintf("/proc/self/fd/%d", img.file.Fd())
	if err := unix.Mount(source, img.point, "erofs", unix.MS_RDONLY|unix.MS_NODEV, ""); err != nil {
		return errors.Join(&mounts.Error{What: "erofs", Err: err}, os.Remove(img.point), os.Remove(point))
	}
	return nil
}

// imageMark has the attributes that change when a process writes to a file.
type imageMark struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

func (img *image) markOf() (imageMark, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(img.file.Fd()), &st); err != nil {
		return imageMark{}, fmt.Errorf("stat image: %w", err)
	}
	return imageMark{st.Ino, st.Size, st.Ctim}, nil
}

func (img *image) markNow() error {
	mark, err := img.markOf()
	img.mark.Store(&mark)
	return err
}

// marked reports whether the file was not written to since its last verification.
func (img *image) marked() bool {
	mark, err := img.markOf()
	return err == nil && mark == *img.mark.Load()
}

// check reads the file.
func (img *image) check(ctx context.Context) error {
	mark, err := img.markOf()
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := vouch.Read(ctx, img.file, img.bytes, sum); err != nil {
		return vouch.Damaged(ctx, err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != img.sum {
		return fmt.Errorf("%w: the bytes have another hash", vouch.ErrDamaged)
	}
	img.mark.Store(&mark)
	return nil
}

// close takes the image away. Overlays that still show it keep it alive.
func (img *image) close() error {
	err := errors.Join(img.conceal(), mounts.Unmount(img.point, unix.MNT_DETACH), os.Remove(img.point),
		os.Remove(filepath.Dir(img.point)))
	if img.grown != nil {
		img.grown.end()
		return err
	}
	return errors.Join(err, img.file.Close())
}
