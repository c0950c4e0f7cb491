package runner

import (
	"fmt"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	lastSignal   = 64
	ignored      = 1 // SIG_IGN
	sigsetLength = 8 // bytes of the kernel's signal set
)

// A sigaction is the kernel's, on every 64-bit Linux. Without a handler it is the default action.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// catchSignals has the Go runtime catch what it would leave to its default, which would end the
// launcher before it has cleaned up (a service manager's SIGTERM goes to all processes), what it
// would take for a fault of its own and die of (a command's SIGABRT), and what it would leave
// ignored as it was inherited (nohup). What is caught is default again in a command; what is ignored
// would stay so.
//
// The runtime catches by itself what it stops its threads with, and does nothing more. The death of a
// child has its default action, which is none: a thread would wake for it with each command.
func catchSignals() error {
	var caught []os.Signal
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG {
			caught = append(caught, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), caught...)
	if err := catchOthers(); err != nil {
		return err
	}
	_, err := swapAction(unix.SIGCHLD, &sigaction{})
	return err
}

// returnAtOnce is a handler of signals, whose address the kernel gets: no Go code runs in it.
//
//lint:ignore U1000 addressOfReturn uses it
func returnAtOnce()

// addressOfReturn returns the address of returnAtOnce.
func addressOfReturn() uintptr

// catchOthers catches what the Go runtime never does: the signals that libraries of C use between
// threads, 32 to 34, and what is ignored as it was inherited. From a command these would end the
// launcher, although that is the first process of its namespace: the kernel drops what has the
// default action there, but not while the first thread has it blocked, as in a handler.
func catchOthers() error {
	action, err := swapAction(unix.SIGUSR1, nil) // which has all but the handler
	if err != nil {
		return err
	}
	action.handler = addressOfReturn()
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		if sig == unix.SIGKILL || sig == unix.SIGSTOP {
			continue
		}
		old, err := swapAction(sig, nil)
		if err == nil && old.handler <= ignored {
			_, err = swapAction(sig, &action)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// swapAction returns the action of a signal, and gives it a new one unless that is nil.
func swapAction(sig unix.Signal, action *sigaction) (old sigaction, err error) {
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(&old)), sigsetLength, 0, 0); errno != 0 {
		return old, fmt.Errorf("action of signal %d: %w", sig, errno)
	}
	return old, nil
}
