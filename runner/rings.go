package runner

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseRings keeps io_uring from what the calling thread forks. What a command has asked
// of the kernel through it is done after its last process has ended: also
// reads, into the pages of a mapped file, which nothing of the file tells (cas.Store.Take). All other
// requests of a process end before it does (aio(7), io_destroy(2)).
//
// The calls have the same numbers on all architectures that Go programs with sandboxes are built
// for, and in their 32-bit modes; bit 30 is x32's.
func refuseRings() error {
	const setup, register = unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_REGISTER
	const numberAt = 0 // seccomp_data.nr
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberAt},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(1 << 30)},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: setup, Jt: 0, Jf: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: register, Jt: 1, Jf: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("refuse io_uring to commands: %w", errno)
	}
	return nil
}
