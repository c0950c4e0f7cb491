// Package runner starts the commands of actions and ends them.
//
// The process that serves FUSE must not fork: the forked child's exec may wait for
// a file that the process itself is to serve, while the Go runtime of that process
// waits for the forking thread. So a [Launcher] is a second process, the same
// binary re-executed before any mount exists ([MainIfLauncher]), one per position.
// It starts one command at a time and does nothing else.
//
// # How nothing is left alive
//
// The launcher is a child subreaper: all processes that a command starts stay below it, however they
// fork or detach. A command has ended when the launcher has no child left; the kernel says so for
// certain (ECHILD). Processes that are left when the command exits are killed at once. On a timeout
// or a cancelled context all processes get SIGTERM, and SIGKILL after the grace period or as soon as
// the command itself has exited.
//
// The launcher kills through the slot's cgroup, if there is one, because no fork can escape that;
// and through the process tree, for processes that left the group, as root may. Without a group, it
// kills fork bombs process group by process group, in rounds.
//
// When the worker dies, the launcher's socket closes, and the launcher kills everything and exits.
// When the launcher dies, the command dies with it (PDEATHSIG), and Run kills the slot's group. The
// worker is a child subreaper, too: detached processes become its children then, and Run kills and
// reaps them. In a sandbox the launcher is the first process of its process namespace: one signal
// reaches all other processes, none can leave, and the kernel ends them with the launcher.
//
// A process in uninterruptible sleep ends when the kernel lets it. Run waits, warns and calls
// Command.Stuck after five seconds, so that the owner of a FUSE mount can abort it. After 15 seconds
// it gives up the launcher with [ErrUnkillable]. The first process of a namespace stays until the
// last one in it is gone, so Close is limited by its context, and Launcher.Gone says when the rest
// can be removed.
//
// # Out of memory
//
// The cgroup counts processes that the kernel kills for lack of memory, so every such kill is known.
// Under cgroup v2 the kernel kills the whole command. Under v1 it kills the largest process, and the
// others may continue and exit with 0. Both are [OutOfMemory], because the kill may have changed the
// result.
//
// # What a command sees
//
// A command has its arguments, exactly its environment, and its working directory. Standard input is
// /dev/null, standard output and error are pipes to files of limited size, and no other descriptor
// is open. Signals have their default dispositions and none is blocked; the umask is 022. The
// command has a session of its own and the worker's resource limits. Its first argument is resolved
// as REv2 (Command.arguments) says: with a slash, from the working directory; without one, in PATH
// of its own environment, or in [DefaultPath] if it has none. Its maximum resident set size is never
// less than the launcher's, some 10 MB, because the kernel starts the count in the forking process.
//
// With [LauncherOptions].Sandbox the command runs in a sandbox: package sandbox says what it sees
// and may do there. The process numbers of Command.Stuck and ErrUnkillable are then those in the
// sandbox.
//
// # What it does not do
//
// It starts no shell, has no default environment, and runs no second command at the same time. It
// neither makes nor removes directories. It limits no resources: the slot's group does.
//
// # Goroutines and locks
//
// A Launcher has one goroutine, which reads the messages of the launcher process and reaps it; Close
// waits for it as long as its context lasts. Its mutex guards the running command, and is held
// during no I/O except a write to the socket. One thread starts all launchers, and finds the
// processes that they left when they died.
//
// In the launcher process one locked thread does a command from the request to the answer: it waits
// for the request, starts the command, prepares the namespaces of the next one, and reaps. No other
// thread has to wake up for that. Commands with another set of system calls have a thread of their
// own, which the first one waits for. After the answer the thread closes the pipes, and finds out
// whether the next command may have the same network namespace.
//
// Three goroutines wait for what is rarer: one for output of the command, which it copies, one for
// stops and the end of the worker, which come by a socket of their own as the first thread may wait in
// exec, and one makes networks. The copier ends its work on an output when the command has ended; what
// is left in the pipe then the thread copies. The killer, a
// goroutine, exists from the first stop, or the first process that outlives its command, until no
// process is left; the next command waits for its end. The garbage collector runs only between
// commands, because it cannot stop a thread that waits in exec.
package runner
