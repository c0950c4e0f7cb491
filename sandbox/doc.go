// Package sandbox holds what a command sees and may do: the view of the machine, its own mounts,
// namespaces, identity, capabilities, system calls, devices, keyring and network.
//
// [Options] are what all commands of a launcher see, [Policy] is what one command may do, and [Folders] are
// what it sees of its own. Both have to say what an option is, and this package alone has to do it: package
// runner, which starts and ends commands, carries them along without looking at them.
//
// # What a command sees
//
//   - its input root at [Root], whichever launcher runs it;
//   - Folders.TempDir as /tmp and /var/tmp, and an empty /dev/shm;
//   - of the machine [DefaultShow] and Options.Show, read-only, as they were mounted when the
//     launcher started, and what the C library, certificates and runtimes need of /etc and
//     /sys; never Options.Hide. Of /dev the usual eight and terminals of its own;
//   - no process but the launcher, itself and what it starts; no System V memory,
//     queue or semaphore of anybody; with Policy.NoNetwork no network but a
//     loopback device, else the machine's, of which Landlock closes the sockets
//     of the abstract namespace (Thread.NotApart, if it cannot).
//
// It has no io_uring, by which it could ask the kernel for what is done after its end. It has no new
// privileges (setuid programs give none), and as root no capability beyond those of a package
// manager: it cannot mount, trace the launcher, make devices, open files by handle, or change the
// network or the machine. A User with IDs
// has these in a user namespace only, and is nobody outside. A filter denies the system calls
// that container engines deny (Policy.Allow).
//
// # How it is made
//
// The launcher is born into CloneFlags. Once, [Enter] gives the process its root and what commands share: a
// [Box]. Each thread that forks gives up what its commands shall not have: a [Thread]. For each command the
// worker takes mounts of its folders along ([Take]), Thread.Enter puts them into a mount namespace that is
// made for it, and Child.Fork makes the process: that costs some mounts and two namespaces; those of users
// and of networks are there before it.
//
// # What it refuses
//
// It starts no launcher, waits for no command and ends none, and limits nothing: cgroups do.
//
// # Goroutines
//
// A Box has one, a thread that makes networks ahead; it ends with the process.
package sandbox
