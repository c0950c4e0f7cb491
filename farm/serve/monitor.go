package serve

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// slackenMonitor lets the kernel wake the thread that monitors the threads of the Go runtime
// (sysmon) late by up to slack; 0 changes nothing. While anything runs, that thread sleeps for 20 µs
// at a time, and the kernel's usual slack is 50 µs: this takes a sixth of the CPU time of a farm that
// compiles. In return a processor of the runtime (P) stays with a thread that waits in the kernel
// for that much longer. Threads and programs that this thread starts inherit the slack, and in time
// most threads have it: a launcher sets that of commands back. It is for main, and does nothing
// without CAP_SYS_NICE.
func slackenMonitor(slack time.Duration, log *zap.Logger) {
	if slack <= 0 {
		return
	}
	if err := slacken(slack); err != nil {
		log.Debug("the monitor of the Go runtime keeps its slack", zap.Error(err))
	}
}

func slacken(slack time.Duration) error {
	thread, err := monitorThread()
	if err != nil {
		return fmt.Errorf("find the monitor thread: %w", err)
	}
	// Other threads are found here by their numbers, although they are not listed.
	file, err := os.OpenFile(fmt.Sprintf("/proc/%d/timerslack_ns", thread), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(strconv.FormatInt(slack.Nanoseconds(), 10))
	return err
}

// monitorThread returns the second thread of this process: the runtime starts the monitor before it
// runs any code of the program, and the kernel lists threads in the order of their starts.
func monitorThread() (int, error) {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return 0, err
	}
	defer tasks.Close()
	threads, err := tasks.Readdirnames(2)
	if err != nil {
		return 0, err
	}
	if len(threads) < 2 {
		return 0, fmt.Errorf("there are only the threads %q", threads)
	}
	return strconv.Atoi(threads[1])
}

// runtimeProcessors is what the runtime has chosen at the start, by the CPUs that the process may
// use.
var runtimeProcessors = runtime.GOMAXPROCS(0)

// spareProcessors gives the runtime so many more processors (P) than it has chosen. One that a
// thread keeps while it waits in the kernel, to unmount a root or to remove a file, is missing
// elsewhere until the monitor takes it away. It is for main; GOMAXPROCS in the environment has
// precedence.
func spareProcessors(n int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtimeProcessors + n)
	}
}
