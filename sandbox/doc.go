// Package sandbox defines what a command sees and may do: the view of the machine, mounts,
// namespaces, identity, capabilities, system calls, devices, keyring and network.
//
// [Options] apply to all commands of a launcher, [Policy] applies to one command, and [Folders]
// name the private folders of a command. Only this package interprets these: package runner, which
// starts and ends commands, passes them on.
//
// # What a command sees
//
//   - its input root at [Root], with every launcher;
//   - Folders.TempDir as /tmp and /var/tmp, and an empty /dev/shm;
//   - from the machine: [DefaultShow] and Options.Show, read-only, as mounted when the
//     launcher started, and the parts of /etc and /sys that the C library, certificates and
//     runtimes need; never Options.Hide. In /dev the usual eight devices and private terminals;
//   - no processes except the launcher, itself and its children; no System V memory,
//     queue or semaphore of others. With Policy.NoNetwork it has only a loopback
//     device. Otherwise it has the machine's network, without the sockets of the abstract
//     namespace, which Landlock blocks (Thread.NotApart says if Landlock cannot).
//
// It has no io_uring, with which it could make the kernel work after its end. It gains no
// privileges (setuid programs give none), and as root it has only the capabilities that a package
// manager needs: it cannot mount, trace the launcher, make devices, open files by handle, or change
// the network or the machine. A User with IDs has these IDs in a user namespace only, and is nobody
// outside. A filter denies the system calls that container engines deny (Policy.Allow).
//
// # How the sandbox is built
//
// The launcher starts with CloneFlags. Once, [Enter] gives the process its root and everything that
// commands share: a [Box]. Each thread that forks drops all rights that commands must not have: a
// [Thread]. For each command the worker clones the mounts of its folders ([Take]), Thread.Enter
// attaches them in a new mount namespace, and Child.Fork makes the process. This costs some mounts
// and two namespaces; the user and network namespaces exist before.
//
// # What it does not do
//
// It does not start launchers, it does not wait for commands or end them, and it limits no
// resources: cgroups do.
//
// # Goroutines
//
// A Box has one thread, which makes networks in advance. The thread ends with the process.
package sandbox
