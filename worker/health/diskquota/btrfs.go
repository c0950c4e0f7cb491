package diskquota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ioctls of linux/btrfs.h.
	treeSearch = 0xd0009411
	inoLookup  = 0xd0009412
	startSync  = 0x80089418
	fsInfo     = 0x8400941f

	// of linux/btrfs_tree.h.
	firstFree        = 256 // BTRFS_FIRST_FREE_OBJECTID
	quotaTree        = 8
	relationKey      = 246
	levelShift       = 48
	limitsReferenced = 1 << 0
	limitsExclusive  = 1 << 1

	// btrfsAtOnce is the maximum that btrfs reserves for one write, with its metadata, unless the
	// caller asks for more.
	btrfsAtOnce = 4 << 20
)

// A groupID has the level and number of a quota group; on level 0 the number is the ID of a
// subvolume.
type groupID uint64

func (id groupID) String() string { return fmt.Sprintf("%d/%d", id.level(), id&(1<<levelShift-1)) }

func (id groupID) level() uint64 { return uint64(id >> levelShift) }

// A group is a quota group of btrfs, by its folder in sysfs.
type group struct {
	id  groupID
	dir string
}

// groupsOf returns the groups that limit writes to the subvolume of d, with the kernel's present
// counts. Only root can find out which groups contain a group: for other users all groups of higher
// levels count.
func groupsOf(d *os.File) ([]limit, error) {
	var info [1024]byte
	if err := ioctl(d, fsInfo, unsafe.Pointer(&info)); err != nil {
		return nil, fmt.Errorf("btrfs of %s: %w", d.Name(), err)
	}
	fsid := info[16:32]
	all := filepath.Join("/sys/fs/btrfs", fmt.Sprintf("%x-%x-%x-%x-%x", fsid[:4], fsid[4:6], fsid[6:8], fsid[8:10], fsid[10:]))
	if _, err := os.Stat(all); err != nil {
		return nil, fmt.Errorf("quota groups of btrfs: %w", err)
	}
	all = filepath.Join(all, "qgroups")
	names, err := os.ReadDir(all)
	if errors.Is(err, fs.ErrNotExist) { // quotas are off
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("quota groups of btrfs: %w", err)
	}
	own, err := subvolume(d)
	if err != nil {
		return nil, fmt.Errorf("subvolume of %s: %w", d.Name(), err)
	}
	above, isKnown, err := groupsAbove(d, own)
	if err != nil {
		return nil, fmt.Errorf("quota groups above %s: %w", own, err)
	}
	var limits []limit
	for _, name := range names {
		id, ok := parseGroup(name.Name())
		if ok && (id == own || above[id] || !isKnown && id.level() > 0) {
			limits = append(limits, group{id, filepath.Join(all, name.Name())})
		}
	}
	return limits, nil
}

func parseGroup(name string) (groupID, bool) {
	level, number, ok := strings.Cut(name, "_")
	l, err1 := strconv.ParseUint(level, 10, 16)
	n, err2 := strconv.ParseUint(number, 10, levelShift)
	return groupID(l<<levelShift | n), ok && err1 == nil && err2 == nil
}

func subvolume(d *os.File) (groupID, error) {
	var args [4096]byte
	binary.NativeEndian.PutUint64(args[8:], firstFree)
	err := ioctl(d, inoLookup, unsafe.Pointer(&args))
	return groupID(binary.NativeEndian.Uint64(args[:])), err
}

// groupsAbove returns the groups that id is part of, directly or not, or that this process may not
// know them.
func groupsAbove(d *os.File, id groupID) (above map[groupID]bool, isKnown bool, err error) {
	above = map[groupID]bool{}
	for todo := []groupID{id}; len(todo) > 0; todo = todo[1:] {
		parents, err := relations(d, todo[0])
		if errors.Is(err, unix.EPERM) {
			return nil, false, nil
		}
		if err != nil && !errors.Is(err, unix.ENOENT) { // no tree: quotas were just turned off
			return nil, false, err
		}
		for _, p := range parents {
			if p.level() > todo[0].level() && !above[p] {
				above[p] = true
				todo = append(todo, p)
			}
		}
	}
	return above, true, nil
}

// relations returns the groups that contain id, and those in id: as many as one call returns, the
// smallest first.
func relations(d *os.File, id groupID) (others []groupID, err error) {
	const keyBytes, headerBytes, most = 104, 32, ^uint64(0)
	// Start at the next level, so that groups in id do not fill the answer.
	least := (id.level() + 1) << levelShift
	var args [4096]byte
	put := func(at int, v uint64) { binary.NativeEndian.PutUint64(args[8*at:], v) }
	put(0, quotaTree)
	put(1, uint64(id))
	put(2, uint64(id))
	put(3, least)
	put(4, most)
	put(6, most) // any transaction
	binary.NativeEndian.PutUint32(args[56:], relationKey)
	binary.NativeEndian.PutUint32(args[60:], relationKey)
	binary.NativeEndian.PutUint32(args[64:], uint32(len(args)/headerBytes))
	if err := ioctl(d, treeSearch, unsafe.Pointer(&args)); err != nil {
		return nil, err
	}
	found := binary.NativeEndian.Uint32(args[64:])
	for rest := args[keyBytes:]; found > 0 && len(rest) >= headerBytes; found-- {
		others = append(others, groupID(binary.NativeEndian.Uint64(rest[16:])))
		rest = rest[min(len(rest), headerBytes+int(binary.NativeEndian.Uint32(rest[28:]))):]
	}
	return others, nil
}

// space implements limit.
func (g group) space() (Space, bool, error) {
	r := reader{dir: g.dir}
	flags := r.number("limit_flags")
	space := Space{
		Of: "btrfs quota group " + g.id.String(), Free: Unbounded, MostBytes: Unbounded, Files: Unbounded, MostFiles: Unbounded,
		Late: true, AtOnce: btrfsAtOnce,
	}
	if r.err == nil && flags&(limitsReferenced|limitsExclusive) != 0 {
		reserved := r.number("rsv_data") + r.number("rsv_meta_prealloc") + r.number("rsv_meta_pertrans")
		for flag, name := range map[int64]string{limitsReferenced: "referenced", limitsExclusive: "exclusive"} {
			if flags&flag != 0 {
				most := r.number("max_" + name)
				space.Free, space.MostBytes = min(space.Free, max(0, most-r.number(name)-reserved)), min(space.MostBytes, most)
			}
		}
	}
	if errors.Is(r.err, fs.ErrNotExist) || errors.Is(r.err, unix.ENODEV) { // the group no longer exists
		return space, false, nil
	}
	return space, space.MostBytes < Unbounded, r.err
}

// A reader reads numbers of a folder of sysfs until the first error.
type reader struct {
	dir string
	err error
}

func (r *reader) number(name string) int64 {
	if r.err != nil {
		return 0
	}
	raw, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.err = err
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	r.err = err
	return int64(min(n, Unbounded))
}

// startCommit has btrfs begin to end its transaction, and does not wait.
func startCommit(d *os.File) error {
	var transaction uint64
	return ioctl(d, startSync, unsafe.Pointer(&transaction))
}

func ioctl(d *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
