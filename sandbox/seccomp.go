package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are the system calls that commands in a sandbox cannot make, by the word that allows them
// (Policy.Allow): those that container engines deny by default, and those that have most often been
// used to escape from namespaces. They fail with EPERM.
//
// Calls by which a command makes namespaces and mounts in them are not among them, because
// sandboxes within commands are common: their effects are limited to namespaces without rights
// outside.
var denied = map[string][]string{
	"keyrings":    {"add_key", "request_key"}, // and keyctl, but to join a new one
	"userfaultfd": {"userfaultfd"},
	"perf":        {"perf_event_open"},
	"bpf":         {"bpf"},
	"handles":     {"open_by_handle_at"},
	"fanotify":    {"fanotify_init"},
	"modules":     {"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms"},
	"kexec":       {"kexec_load", "kexec_file_load", "reboot"},
	"clock":       {"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "clock_settime64", "clock_adjtime64"},
	"swap":        {"swapon", "swapoff"},
	"accounting":  {"acct", "quotactl", "quotactl_fd", "syslog"},
	"ports":       {"iopl", "ioperm", "modify_ldt"},
	"numa":        {"move_pages", "migrate_pages"},
	"old":         {"uselib", "ustat", "sysfs", "_sysctl", "nfsservctl", "vm86", "vm86old", "lookup_dcookie", "bdflush"},
	"vhangup":     {"vhangup"},
	// By way of this one, 32-bit programs would reach families of sockets that are denied.
	"socketcall": {"socketcall"},
}

// lasting are those of io_uring, which no word allows and which fail with ENOSYS. The kernel
// executes a command's requests through it even after its last process has ended: also reads, into
// the pages of a mapped file, which leave no trace at the file (disk.Store.Take). All other
// requests of a process end before it does (aio(7), io_destroy(2)).
var lasting = []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}

// scarce are calls for resources that the machine has few of, or whose memory is charged to no
// cgroup: one command could take all of it. Programs work without them. Policy.Allow allows them.
// The settings of a mount context are such memory, some 128 KiB in an open file; the C library's
// mount(2), which programs then use, needs none.
var scarce = map[string][]string{"aio": {"io_setup"}, "mount_contexts": {"fsopen", "fspick"}}

// absentFor are the system calls that fail as if the kernel did not have them.
func absentFor(allow []string) []string {
	names := slices.Clone(lasting)
	for word, calls := range scarce {
		if !slices.Contains(allow, word) {
			names = append(names, calls...)
		}
	}
	return names
}

// Words for calls that are denied with some arguments only: families of sockets and netlink
// protocols except the useful ones; keyrings except a new one; typing on terminals; limits of core
// dumps.
const (
	vsock     = "vsock"
	netlink   = "netlink"
	families  = "families"
	keyrings  = "keyrings"
	terminals = "tiocsti"
	coreDumps = "core_dumps"
)

// networkNamespaces is the word for namespaces that a command makes itself
// (Policy.networkNamespaces).
const networkNamespaces = "network_namespaces"

// usefulFamilies are the families of sockets that programs use. For others the kernel loads modules
// on demand; they fail as if it did not have them: AF_ALG has let a command write to pages of files
// that it may only read (CVE-2026-31431), which all of the machine shares. The denial of AF_VSOCK
// has a word of its own.
var usefulFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_VSOCK}

// usefulNetlink are the protocols by which programs list interfaces, routes and sockets, of their
// own network namespace. The others concern the machine: its devices, audit, connector.
var usefulNetlink = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG}

// CheckAllowed returns an error for a word that Policy.Allow does not know.
func CheckAllowed(words []string) error {
	known := slices.Sorted(maps.Keys(denied))
	known = append(known, slices.Sorted(maps.Keys(scarce))...)
	known = append(known, vsock, families, netlink, terminals, coreDumps, networkNamespaces)
	for _, w := range words {
		if !slices.Contains(known, w) {
			return fmt.Errorf("%q is none of %s", w, strings.Join(known, ", "))
		}
	}
	return nil
}

// restrict has the calling thread, and all that it forks, never again make the system calls
// that are denied and not allowed.
func restrict(allow []string) error {
	program, err := filterOf(allow)
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(program)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// assemble makes a program as the kernel takes it.
func assemble(code []bpf.Instruction) (*unix.SockFprog, error) {
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}, nil
}

// filterOf is the program. The library assembles the rules by number; it would compare arguments as
// 64 bits, of which the kernel uses 32.
func filterOf(allow []string) (*unix.SockFprog, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
		{Names: absentFor(allow), Action: absent},
		{Names: deniedOn(native, allow), Action: forbidden},
	}}
	filter, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	begin := onEach(native, func(on *arch.Info) (code []bpf.Instruction) {
		if on != native {
			for _, name := range absentFor(allow) {
				code = append(code, answer(absent, callOf(on, name))...)
			}
			for _, name := range deniedOn(on, allow) {
				code = append(code, answer(forbidden, callOf(on, name))...)
			}
		}
		return append(code, deniedArguments(on, allow)...)
	})
	return assemble(append(begin, filter...))
}

// withoutNamespaces is a filter for commands that cannot make namespaces of these kinds, by their
// flags. A filter cannot see the arguments of clone3; the C library then uses clone.
func withoutNamespaces(flags uint32) (*unix.SockFprog, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	asks := word{offset: argument(0), bits: flags}
	code := onEach(native, func(on *arch.Info) (code []bpf.Instruction) {
		code = append(code, answer(forbidden, callOf(on, "clone"), asks)...)
		code = append(code, answer(forbidden, callOf(on, "unshare"), asks)...)
		return append(code, answer(absent, callOf(on, "clone3"))...)
	})
	return assemble(append(code, bpf.RetConstant{Val: uint32(seccomp.ActionAllow)}))
}

// onEach is a program for all architectures that this machine executes. For its native one the rest
// of the program follows; it allows remaining calls of the other one, and denies all further ones.
func onEach(native *arch.Info, answers func(on *arch.Info) []bpf.Instruction) []bpf.Instruction {
	if native.ID != arch.X86_64.ID {
		return append(answer(forbidden, word{offset: archOffset, values: []uint32{uint32(native.ID)}}), answers(native)...)
	}
	other := append(answers(arch.I386), bpf.RetConstant{Val: uint32(seccomp.ActionAllow)})
	code := append(answer(forbidden, word{offset: archOffset, values: []uint32{uint32(native.ID), uint32(arch.I386.ID)}}),
		bpf.LoadAbsolute{Off: archOffset, Size: wordSize},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(arch.I386.ID), SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(other))})
	return append(append(code, other...), answers(native)...)
}

// Offsets in the input of a filter (seccomp_data), on little-endian machines.
const (
	wordSize       = 4
	numberOffset   = 0
	archOffset     = 4
	argumentOffset = 16
)

// A word is a condition on the value at an offset: that it is one of values, or none of them; or
// that one of the bits is set.
type word struct {
	offset uint32
	values []uint32
	is     bool
	bits   uint32 // 0: values count
}

// argument is the part of an argument that the kernel takes of an int; the upper half is 4 further.
func argument(i uint32) uint32 { return argumentOffset + 8*i }

// answer gives a system call this result if all conditions hold; otherwise the next rule follows.
func answer(with seccomp.Action, all ...word) []bpf.Instruction {
	if len(all) == 0 {
		return []bpf.Instruction{bpf.RetConstant{Val: uint32(with)}}
	}
	w, rest := all[0], answer(with, all[1:]...)
	code := []bpf.Instruction{bpf.LoadAbsolute{Off: w.offset, Size: wordSize}}
	if w.bits != 0 {
		return append(append(code, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: w.bits, SkipFalse: uint8(len(rest))}), rest...)
	}
	for i, v := range w.values {
		skip := len(w.values) - 1 - i
		if w.is {
			skip++ // over the jump
		} else {
			skip += len(rest)
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(skip)})
	}
	if w.is {
		code = append(code, bpf.Jump{Skip: uint32(len(rest))})
	}
	return append(code, rest...)
}

func callOf(on *arch.Info, name string) word {
	return word{offset: numberOffset, values: []uint32{uint32(on.SyscallNames[name])}, is: true}
}

// deniedArguments denies system calls that are denied with some arguments only.
func deniedArguments(on *arch.Info, allow []string) (code []bpf.Instruction) {
	give := func(with seccomp.Action, permit, name string, conditions ...word) {
		if _, ok := on.SyscallNames[name]; ok && !slices.Contains(allow, permit) {
			code = append(code, answer(with, append([]word{callOf(on, name)}, conditions...)...)...)
		}
	}
	deny := func(permit, name string, conditions ...word) { give(forbidden, permit, name, conditions...) }
	for _, name := range []string{"socket", "socketpair"} {
		give(unsupported, families, name, word{offset: argument(0), values: usefulFamilies})
	}
	deny(keyrings, "keyctl", word{offset: argument(0), values: []uint32{unix.KEYCTL_JOIN_SESSION_KEYRING}})
	deny(keyrings, "keyctl", word{offset: argument(1), values: []uint32{0}})
	deny(keyrings, "keyctl", word{offset: argument(1) + wordSize, values: []uint32{0}})
	deny(vsock, "socket", word{offset: argument(0), values: []uint32{unix.AF_VSOCK}, is: true})
	deny(netlink, "socket", word{offset: argument(0), values: []uint32{unix.AF_NETLINK}, is: true}, word{offset: argument(2), values: usefulNetlink})
	deny(terminals, "ioctl", word{offset: argument(1), values: []uint32{unix.TIOCSTI, unix.TIOCLINUX}, is: true})
	if !slices.Contains(allow, coreDumps) {
		code = append(code, keepCoreLimit(on)...)
	}
	return code
}

// keepCoreLimit has setting the limit of core dumps do nothing, without an error: scripts that set
// it go on.
func keepCoreLimit(on *arch.Info) (code []bpf.Instruction) {
	is := func(i uint32) word { return word{offset: argument(i), values: []uint32{unix.RLIMIT_CORE}, is: true} }
	code = answer(pretended, callOf(on, "setrlimit"), is(0))
	for _, half := range []uint32{0, wordSize} { // of the pointer to a new limit
		code = append(code, answer(pretended, callOf(on, "prlimit64"), is(1), word{offset: argument(2) + half, values: []uint32{0}})...)
	}
	return code
}

// The answers to system calls that are not made.
const (
	forbidden   = seccomp.ActionErrno&^0xffff | seccomp.Action(unix.EPERM)
	absent      = seccomp.ActionErrno&^0xffff | seccomp.Action(unix.ENOSYS)
	unsupported = seccomp.ActionErrno&^0xffff | seccomp.Action(unix.EAFNOSUPPORT)
	pretended   = seccomp.ActionErrno &^ 0xffff // no error
)

// deniedOn lists the names of system calls that an architecture has, in order.
func deniedOn(on *arch.Info, allow []string) []string {
	var names []string
	for word, calls := range denied {
		if slices.Contains(allow, word) {
			continue
		}
		for _, name := range calls {
			if _, ok := on.SyscallNames[name]; ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// newKeyring gives the calling thread, and its children, a new session keyring. A kernel without
// keyrings needs none.
func newKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("join a session keyring: %w", err)
	}
	return nil
}
