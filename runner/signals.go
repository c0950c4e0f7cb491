package runner

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	lastSignal   = 64
	ignored      = 1 // SIG_IGN
	sigsetLength = 8 // bytes of the kernel's signal set
)

// A sigaction is the kernel's, on every 64-bit Linux. Zero is the default action.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// unignoreSignals gives every signal that is still ignored its default action: those
// that whoever started the worker ignored and that the Go runtime leaves alone, such
// as 32 and 33. Commands would inherit them.
func unignoreSignals() error {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var old, standard sigaction
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig,
			0, uintptr(unsafe.Pointer(&old)), sigsetLength, 0, 0); errno != 0 {
			return fmt.Errorf("read action of signal %d: %w", sig, errno)
		}
		if old.handler != ignored {
			continue
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig,
			uintptr(unsafe.Pointer(&standard)), 0, sigsetLength, 0, 0); errno != 0 {
			return fmt.Errorf("reset action of signal %d: %w", sig, errno)
		}
	}
	return nil
}
