package sandbox

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// keptCapabilities are those of a command of root in a sandbox: enough for its own files and
// processes, for fakeroot and package managers, but not to mount, trace the launcher, make devices,
// open files by handle or change the network.
var keptCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SETFCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
}

// droppedCapabilities are all others of the kernel.
var droppedCapabilities = sync.OnceValue(func() (dropped []uintptr) {
	for c := uintptr(0); c < 64; c++ {
		if set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || set < 0 {
			break // the kernel's last one was before
		}
		if !slices.Contains(keptCapabilities, c) {
			dropped = append(dropped, c)
		}
	}
	return dropped
})

func boundCapabilities() error {
	for _, c := range droppedCapabilities() {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	// Inheritable capabilities would pass the bound.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("make no capability inheritable: %w", err)
	}
	return nil
}
