package ids

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// Ids from firstOwnID on are nobody's: above those of containers (systemd, UIDs-GIDs.md) and of
	// /etc/subuid, below those that old programs take for negative.
	firstOwnID, lastOwnID = 1879048192, 2147352575
	// idsEach is how many a command may be: as many as a container.
	idsEach = 1 << 16
)

// An Own is a range of users and groups of the machine that are reserved for this worker while it
// runs: Count times Each, from First on.
type Own struct {
	First, Each uint32
	Count       int
	lockFile    *os.File
}

// spareIDs are for actions that come after those of whom a process cannot be ended.
const spareIDs = 8

// Take reserves ids for so many concurrent actions, and some to spare. The range depends on the
// data folder, and on the ranges of other workers on the machine.
func Take(data string, positions int) (*Own, error) {
	first, count, err := idsHere()
	if err != nil {
		return nil, err
	}
	if uint64(first)+uint64(count) <= lastOwnID {
		// In a container of few ids each action is one, the last ones that there are.
		if positions*2 > int(count) {
			return nil, fmt.Errorf("this container has %d users, too few for %d actions", count, positions)
		}
		positions = min(positions+spareIDs, int(count)/2)
		return &Own{First: first + count - uint32(positions), Each: 1, Count: positions}, nil
	}
	positions += spareIDs
	blocks := uint32(lastOwnID-firstOwnID+1) / idsEach
	if uint64(positions) > uint64(blocks) {
		return nil, fmt.Errorf("there are no users for %d actions", positions)
	}
	candidates := blocks - uint32(positions) + 1
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(data))
	if host, err := os.Hostname(); err == nil { // in containers: workers there do not see the locks of others
		_, _ = hash.Write([]byte(host))
	}
	for try := range candidates {
		block := (hash.Sum32()%candidates + try) % candidates
		own := &Own{First: firstOwnID + block*idsEach, Each: idsEach, Count: positions}
		taken, err := own.lock(block, positions)
		if err != nil {
			return nil, err
		}
		if !taken {
			return own, nil
		}
	}
	return nil, errors.New("other workers on this machine use all user ids")
}

// idsFile is where workers of a machine lock their ids, a byte for each block of them. Only root
// gets there, so nobody else can take what is a worker's.
const idsFile = "/run/forerunner-ids"

// lock keeps other workers of this machine from blocks of ids.
func (o *Own) lock(block uint32, count int) (taken bool, err error) {
	if err := os.MkdirAll(filepath.Dir(idsFile), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(idsFile, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, err
	}
	blocks := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(block), Len: int64(count)}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &blocks)
	if err == nil {
		o.lockFile = f
		return false, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return true, nil
	}
	return false, &os.PathError{Op: "lock", Path: idsFile, Err: err}
}

// Close releases the ids. A nil Own has none.
func (o *Own) Close() error {
	if o == nil || o.lockFile == nil {
		return nil
	}
	f := o.lockFile
	o.lockFile = nil
	return f.Close()
}

// idsHere is the last run of users that this process's user namespace has.
func idsHere() (first, count uint32, err error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, n uint32
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err != nil {
			return 0, 0, fmt.Errorf("/proc/self/uid_map: %q: %w", line, err)
		}
		if inside >= first {
			first, count = inside, n
		}
	}
	return first, count, nil
}
