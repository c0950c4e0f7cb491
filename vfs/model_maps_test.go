package vfs

import (
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

func (o *operator) mapOf(s step, prot, flags int) ([]byte, string) {
	var st unix.Stat_t
	if err := unix.Fstat(o.fds[s.Fd], &st); err != nil {
		return nil, done(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, "not mapped"
	}
	b, err := unix.Mmap(o.fds[s.Fd], 0, int(min(max(st.Size, 1), 1<<21)), prot, flags)
	return b, done(err)
}

// touchMapped reads or writes mapped memory, which fails where the file has ended meanwhile.
func touchMapped(f func() string) (outcome string) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			outcome = "SIGBUS"
		}
	}()
	return f()
}

func (o *operator) mapWrite(s step) string {
	b, outcome := o.mapOf(s, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if b == nil {
		return outcome
	}
	at := int(max(s.Off, 0) % int64(len(b)))
	outcome = touchMapped(func() string { copy(b[at:], fill(s)); return got(b, nil) })
	return outcome + " " + done(errors.Join(unix.Msync(b, unix.MS_SYNC), unix.Munmap(b)))
}

// mapPrivate opens the file itself, see the differences in the comment of TestModel.
func (o *operator) mapPrivate(s step) string {
	fd, err := unix.Openat(o.at(s), s.A, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return done(err)
	}
	now := operator{fds: [slots]int{fd}}
	defer now.closeSlot(0)
	s.Fd = 0
	b, outcome := now.mapOf(s, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if b == nil {
		return outcome
	}
	before := touchMapped(func() string { return got(b, nil) })
	at := int(max(s.Off, 0) % int64(len(b)))
	after := touchMapped(func() string { copy(b[at:], fill(s)); return got(b, nil) })
	return before + " " + after + " " + done(unix.Munmap(b)) + " " + now.pread(step{N: len(b)})
}

// mmap maps a file for longer: only one that is open for writing, see the
// differences in the comment of TestModel.
func (o *operator) mmap(s step) string {
	b, outcome := o.mapOf(s, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if b != nil {
		o.unmap(s)
		o.maps[s.Fd%mapSlots] = b
	}
	return outcome
}

func (o *operator) mread(s step) string {
	return touchMapped(func() string { return got(o.maps[s.Fd%mapSlots], nil) })
}

// mwrite also writes back: a file's time changes with the first write to a page after a write-back,
// and the kernel writes back by itself at unknown times.
func (o *operator) mwrite(s step) string {
	b := o.maps[s.Fd%mapSlots]
	at := int(max(s.Off, 0) % int64(len(b)+1))
	outcome := touchMapped(func() string { return moved(int64(copy(b[at:], fill(s))), nil) })
	if len(b) > 0 {
		outcome += " " + done(unix.Msync(b, unix.MS_SYNC))
	}
	return outcome
}

func (o *operator) unmap(s step) string {
	b := o.maps[s.Fd%mapSlots]
	o.maps[s.Fd%mapSlots] = nil
	if b == nil {
		return ""
	}
	return done(unix.Munmap(b))
}

func (o *operator) flock(s step) string { return done(unix.Flock(o.fds[s.Fd], s.Flags|unix.LOCK_NB)) }

// lock takes a lock of the open file, not of the process, whose own locks never
// stand in its way.
func (o *operator) lock(s step) string {
	l := unix.Flock_t{Type: int16(s.Flags), Start: s.Off, Len: int64(s.N)}
	return done(unix.FcntlFlock(uintptr(o.fds[s.Fd]), unix.F_OFD_SETLK, &l))
}

func (o *operator) getLock(s step) string {
	l := unix.Flock_t{Type: int16(s.Flags), Start: s.Off, Len: int64(s.N)}
	if err := unix.FcntlFlock(uintptr(o.fds[s.Fd]), unix.F_OFD_GETLK, &l); err != nil {
		return done(err)
	}
	return fmt.Sprintf("type %d from %d length %d", l.Type, l.Start, l.Len)
}
