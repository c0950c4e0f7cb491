package diskquota

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

const (
	// of linux/quota.h and linux/dqblk_xfs.h.
	getState = 'X'<<8 + 5 // Q_XGETQSTAT
	getQuota = 0x800007   // Q_GETQUOTA
	ofUsers  = 0
	ofGroups = 1
	// blockBytes is the unit of bounds.
	blockBytes = 1024
)

// enforced has the bits of a state that say whether limits of users and of groups are enforced.
var enforced = [...]uint16{ofUsers: 1 << 1, ofGroups: 1 << 3}

// state is struct fs_quota_stat.
type state struct {
	version int8
	_       int8
	flags   uint16
	_       [96]byte
}

// usage is struct if_dqblk.
type usage struct {
	bytesHard, bytesSoft, bytes uint64 // the bounds in blocks
	filesHard, filesSoft, files uint64
	bytesTime, filesTime        uint64 // until when a soft bound may be exceeded, in seconds; 0: it is not
	valid                       uint64 // the fields to set
}

// An account is the quota of a user or a group.
type account struct {
	dir     string
	kind    int // ofUsers or ofGroups
	id      uint32
	foreign bool
}

// accountsOf returns the quotas of owners that are enforced on the file system of d. On XFS the
// quota of root is the default quota.
func accountsOf(d *os.File, owners []folder.Owner, isXFS bool) (limits []limit) {
	var on state
	on.version = 1 // FS_QSTAT_VERSION
	if quotactl(d, getState, ofUsers, 0, unsafe.Pointer(&on)) != nil {
		return nil // there are none
	}
	own := folder.ProcessOwner()
	seen := map[account]bool{}
	for _, o := range owners {
		for _, a := range []account{{d.Name(), ofUsers, o.UID, o.UID != own.UID}, {d.Name(), ofGroups, o.GID, o.GID != own.GID}} {
			if on.flags&enforced[a.kind] == 0 || seen[a] || isXFS && a.id == 0 {
				continue
			}
			seen[a] = true
			limits = append(limits, a)
		}
	}
	return limits
}

// space implements limit.
func (a account) space() (Space, bool, error) {
	space := Space{Of: a.String(), Free: Unbounded, MostBytes: Unbounded, Files: Unbounded, MostFiles: Unbounded, Foreign: a.foreign}
	d, err := os.Open(a.dir)
	if err != nil {
		return space, false, err
	}
	defer d.Close()
	var u usage
	err = quotactl(d, getQuota, a.kind, a.id, unsafe.Pointer(&u))
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOSYS) { // it was turned off, or has no entry
		return space, false, nil
	}
	if err != nil {
		return space, false, fmt.Errorf("%s: %w", a, err)
	}
	now := uint64(time.Now().Unix())
	if most, ok := bound(u.bytesHard*blockBytes, u.bytesSoft*blockBytes, u.bytesTime, now); ok {
		space.MostBytes, space.Free = most, max(0, most-int64(u.bytes))
	}
	if most, ok := bound(u.filesHard, u.filesSoft, u.filesTime, now); ok {
		space.MostFiles, space.Files = most, max(0, most-int64(u.files))
	}
	return space, space.MostBytes < Unbounded || space.MostFiles < Unbounded, nil
}

func (a account) String() string {
	if a.kind == ofGroups {
		return fmt.Sprintf("disk quota of group %d", a.id)
	}
	return fmt.Sprintf("disk quota of user %d", a.id)
}

// bound is the effective limit: a soft limit counts once its grace time is over.
func bound(hard, soft, until, now uint64) (most int64, ok bool) {
	if soft > 0 && until > 0 && until <= now {
		hard = soft
	}
	return int64(min(hard, Unbounded)), hard > 0
}

func quotactl(d *os.File, command, kind int, id uint32, to unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, d.Fd(), uintptr(command<<8|kind), uintptr(id), uintptr(to), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
