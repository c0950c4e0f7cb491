package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
)

// A cpuSample is the CPU time that programs have used so far.
type cpuSample struct {
	farm      time.Duration // of this process: scheduler, storage, worker and clients
	launchers time.Duration
	commands  time.Duration // that have ended, with what their starts cost until they executed
}

// cpuNow asks the kernel, which counts children in hundredths of a second.
func cpuNow() (s cpuSample, err error) {
	s.farm = report.CPUTime()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return s, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// From the third, proc_pid_stat(5); the second, a name, may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 15 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		var ticks [4]time.Duration // user, system, and of its children
		for i := range ticks {
			n, err := strconv.Atoi(fields[11+i])
			if err != nil {
				return s, fmt.Errorf("%s: %w", file, err)
			}
			ticks[i] = time.Duration(n) * 10 * time.Millisecond
		}
		s.launchers += ticks[0] + ticks[1]
		s.commands += ticks[2] + ticks[3]
	}
	return s, nil
}

// since returns the CPU time used after before.
func (s cpuSample) since(before cpuSample) cpuSample {
	return cpuSample{s.farm - before.farm, s.launchers - before.launchers, s.commands - before.commands}
}

// each is that of so many actions, of one of them in milliseconds.
func (s cpuSample) each(actions int) (farm, launchers, commands float64) {
	of := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(actions) }
	return of(s.farm), of(s.launchers), of(s.commands)
}
