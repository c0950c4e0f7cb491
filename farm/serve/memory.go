package serve

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/settings"
)

// Memory limits the memory of a program. Nil is the zero Memory.
type Memory struct {
	// Limit has a unit; empty: the limit of GOMEMLIMIT, of the process's cgroups or of the machine.
	Limit string `tuning:"memory_limit" group:"Callers" unit:"SIZE" otherwise:"that of its cgroup or the machine; beside commands a part of that, see docs/OPERATING.md" doc:"Memory that this program may use; the sizes of caches and the limits of callers depend on it"`
	// Share: without a Limit, this program may use the Share-th part of the available memory; the
	// rest is for commands beside it. 0 is 1.
	Share int64
}

// BesideCommands returns the Memory of a program that runs beside commands.
func BesideCommands() Memory { return Memory{Share: 4} }

// Bytes returns the memory limit in bytes.
func (m *Memory) Bytes() (int64, error) {
	share := int64(1)
	if m != nil {
		limit, err := settings.ParseSize(m.Limit)
		if err != nil {
			return 0, settings.Wrong("tuning.memory_limit: %w", err)
		}
		if limit > 0 {
			return limit, nil
		}
		share = max(1, m.Share)
	}
	there, err := cgroup.Measure()
	if err != nil {
		return 0, fmt.Errorf("find out how much memory there is (or give tuning.memory_limit): %w", err)
	}
	return min(there.Memory/share, goLimit()), nil
}

// goLimit is the limit in GOMEMLIMIT.
func goLimit() int64 {
	n, err := settings.ParseSize(os.Getenv("GOMEMLIMIT"))
	if err != nil || n == 0 {
		return math.MaxInt64
	}
	return n
}

// CacheBytes returns the size of a cache that has so many bytes if there is enough memory.
func (m *Memory) CacheBytes(most int64) (int64, error) {
	memory, err := m.Bytes()
	return min(most, memory/8), err
}

// DirectoryBytes is the cache size of recently used directories if there is enough memory.
const DirectoryBytes = 256 << 20

// softPercent of the memory is the collector's target for this process: the rest is for memory that
// the collector does not count, such as buffers of the kernel.
const softPercent = 85

// Enforce tells the garbage collector the memory limit, and returns it. It is for main; GOMEMLIMIT
// in the environment has precedence.
func (m *Memory) Enforce() (int64, error) {
	n, err := m.Bytes()
	if err == nil && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(n / 100 * softPercent)
	}
	return n, err
}
