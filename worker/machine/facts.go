package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// varying are the lines of /proc/cpuinfo that differ between processors of one kind, or change all
// the time.
var varying = []string{
	"processor", "cpu MHz", "clock", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id", "physical id", "siblings",
}

// inSys are the files of /sys that commands see, and by which machines of one kind of processor
// differ.
var inSys = []string{
	"/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present", "/sys/devices/system/cpu/isolated",
	"/sys/devices/system/cpu/smt/*", "/sys/devices/system/cpu/vulnerabilities/*", "/sys/devices/system/cpu/cpu*/topology/*",
	"/sys/devices/system/cpu/cpu*/cache/index*/*",
	// Not the others there, which are present rates.
	"/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_min_freq", "/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq",
	"/sys/devices/system/node/online", "/sys/devices/system/node/possible", "/sys/devices/system/node/has_*",
	"/sys/devices/system/node/node*/cpulist", "/sys/devices/system/node/node*/distance",
	"/sys/kernel/mm/transparent_hugepage/*", "/sys/kernel/mm/hugepages/*/nr_hugepages",
}

// Facts list the kernel's facts about the machine: kernel, processors and their topology, memory,
// and the file system of the folder upper, which commands write to.
func Facts(upper string) ([]string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("name of the kernel: %w", err)
	}
	facts := []string{"kernel " + strings.Join([]string{
		unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Release[:]),
		unix.ByteSliceToString(name.Version[:]), unix.ByteSliceToString(name.Machine[:]),
	}, " ")}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	facts = append(append(facts, processors(string(text))...), texts(inSys)...)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	// Machines of one kind differ by some KiB.
	gib := (uint64(info.Totalram)*uint64(info.Unit) + 1<<30 - 1) >> 30
	facts = append(facts, fmt.Sprintf("memory %d GiB", gib))
	var fs unix.Statfs_t
	if err := unix.Statfs(upper, &fs); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: upper, Err: err}
	}
	return append(facts, fmt.Sprintf("writes to %x %d %d", fs.Type, fs.Bsize, fs.Namelen)), nil
}

// texts list the content of the files of patterns. An unreadable one is a fact, too: commands
// cannot read it either.
func texts(patterns []string) (facts []string) {
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(pattern) // it fails for bad patterns only
		for _, path := range paths {
			// Commands do not see files that only root may read, such as the serial number of a
			// processor (topology/ppin).
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				text = []byte("unreadable")
			}
			facts = append(facts, path+" "+strings.TrimSpace(string(text)))
		}
	}
	return facts
}

// processors list the lines of /proc/cpuinfo, each once, and the number of processors.
func processors(text string) (facts []string) {
	count := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if name == "processor" {
			count++
		}
		if name != "" && !slices.Contains(varying, name) {
			facts = append(facts, "processor "+name+": "+strings.TrimSpace(value))
		}
	}
	slices.Sort(facts)
	return append(slices.Compact(facts), fmt.Sprintf("processors %d", count))
}
