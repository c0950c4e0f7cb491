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
// The launcher is a child subreaper: what a command starts is below it whatever it
// forks, however it detaches. A command has ended when the launcher has no child
// any more, which the kernel says for certain (ECHILD). What the command leaves
// behind when it exits is killed at once; on a timeout or a cancelled context all
// of it gets SIGTERM, and SIGKILL after the grace or as soon as the command itself
// has exited. Killing goes through the slot's cgroup, if there is one, because no
// fork can win against that; and through the process tree, for those that left the
// group, as root may. Without a group, fork bombs are fought group by process
// group and round by round. When the worker dies the launcher sees its socket
// close, kills everything and exits. When the launcher dies the command dies with
// it (PDEATHSIG), and Run kills the slot's group. The worker is a child subreaper, too:
// what detached becomes its child then, and Run kills and reaps that. In a sandbox the launcher is
// the first process of its process namespace: one signal reaches all others, none
// can leave, and the kernel ends them with the launcher.
//
// Processes in uninterruptible sleep end when the kernel lets go of them. Run waits,
// warns and calls Command.Stuck after five seconds, so that the owner of a FUSE mount
// can abort it, and gives up the launcher after 15 seconds with [ErrUnkillable]. The first
// process of a namespace stays until the last one in it is gone, so Close is bounded by its
// context, and Launcher.Gone tells when the rest of it can be removed.
//
// # Out of memory
//
// What the kernel kills for want of memory is counted by the group, and so is known for
// certain, whichever process it was. Under cgroup v2 the whole command goes; under v1 the
// largest process, and the rest may go on, take it lightly and exit with 0. Both are
// [OutOfMemory], because what came out was shaped by it.
//
// # What a command sees
//
// Its arguments, exactly its environment, its working directory; standard input is
// /dev/null, standard output and error are pipes to bounded files, no other
// descriptor is open. Default signal dispositions, nothing blocked, umask 022, a
// session of its own, the worker's resource limits. Its first argument is resolved
// as REv2 (Command.arguments) says: with a slash, from the working directory;
// without one, in PATH of its own environment, or in [DefaultPath] if it has none.
// Its maximum resident set size is never less than the launcher's, some 10 MB: the
// kernel starts the count in the forking process.
//
// With [LauncherOptions].Sandbox it lives in a sandbox: package sandbox says what it sees and may
// do there. The process numbers that Command.Stuck and ErrUnkillable tell are then those of the
// sandbox.
//
// # What it refuses
//
// No shell, no default environment, no second command while one runs. It neither
// makes nor removes directories. No limits: the slot's group has them.
//
// # Goroutines and locks
//
// A Launcher has one goroutine, which reads what the launcher process says and reaps it; Close
// waits for it as long as its context lasts. Its mutex guards who may run and is never held across
// I/O other than a write to the socket. One thread starts all launchers, and looks for what they
// left when they died. In the launcher process the main goroutine owns all state;
// a reader, locked threads that fork (one for each set of system calls) and one that makes
// networks, a reaper and two copiers report to it by channels. The garbage collector runs only
// between commands there, because a thread that waits in exec cannot be stopped for it.
package runner
