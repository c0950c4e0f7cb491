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

// A cpuSample has the CPU times of programs so far.
type cpuSample struct {
	farm      time.Duration // this process: scheduler, storage, worker and clients
	launchers time.Duration
	commands  time.Duration // of ended commands, including their start before exec
}

// cpuNow returns the CPU times so far. The kernel counts children in hundredths of a second.
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
		// Fields from the third on, proc_pid_stat(5): the second one, a name, may contain any
		// character.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 15 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		var ticks [4]time.Duration // user and system time, of the process and of its children
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

// since returns the CPU times since before.
func (s cpuSample) since(before cpuSample) cpuSample {
	return cpuSample{s.farm - before.farm, s.launchers - before.launchers, s.commands - before.commands}
}

// each returns the CPU times per action, in milliseconds.
func (s cpuSample) each(actions int) (farm, launchers, commands float64) {
	of := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(actions) }
	return of(s.farm), of(s.launchers), of(s.commands)
}
