package usage

import (
	"fmt"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/runner"
)

// ExitOutOfMemory is the code that a shell shows for SIGKILL. It is the exit code of every command
// that ran out of memory, even if the command continued and exited with 0: its outputs may depend
// on that, and clients keep no result of a failed command.
const ExitOutOfMemory = 128 + 9

// blockBytes is the unit of ru_inblock and ru_oublock, on any device.
const blockBytes = 512

// A Command is a completed command, in a slot with these Limits.
type Command struct {
	runner.Result
	Limits cgroup.Limits
}

// OutOfMemory tells the client about the failure and the limit.
func (c *Command) OutOfMemory() string {
	used, limits := c.Group, c.Limits
	processes := "one of the command's processes"
	if used.OOMKills > 1 {
		processes = fmt.Sprintf("%d of the command's processes", used.OOMKills)
	}
	why := "the machine, not this action's slot, had no memory left"
	if used.LimitReached {
		why = "the slot's memory was used up"
	}
	text := fmt.Sprintf("out of memory: the kernel killed %s because %s", processes, why)
	if limits.Memory > 0 {
		text += fmt.Sprintf(" (limit %s", memory(limits.Memory))
		if used.MemoryPeak > 0 {
			text += fmt.Sprintf(", peak %s", memory(used.MemoryPeak))
		}
		text += ")"
	}
	if c.Signal == "" {
		text += fmt.Sprintf("; the command itself went on and ended with exit code %d", c.ExitCode)
	}
	return text
}

// memory writes a limit and a peak that is a little less with different digits.
func memory(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
}

// Resources returns the usage of the command; nil if nothing measures it.
func (c *Command) Resources() *actionstats.Resources {
	used, limits := c.Group, c.Limits
	if used == nil {
		return nil
	}
	return &actionstats.Resources{
		UserTime: durationpb.New(used.User), SystemTime: durationpb.New(used.System),
		Throttled:       durationpb.New(used.Throttled),
		MemoryPeakBytes: used.MemoryPeak, MemoryBeforeBytes: used.MemoryBefore,
		OutOfMemoryKills: used.OOMKills,
		// Only v2 counts by group; the counters of processes that were waited for have the same
		// data.
		ReadBytes:    max(used.ReadBytes, blockBytes*c.Usage.GetBlockInputOperations()),
		WrittenBytes: max(used.WrittenBytes, blockBytes*c.Usage.GetBlockOutputOperations()),
		CpuSome:      durationpb.New(used.CPUSome),
		MemorySome:   durationpb.New(used.MemorySome), MemoryFull: durationpb.New(used.MemoryFull),
		IoSome: durationpb.New(used.IOSome), IoFull: durationpb.New(used.IOFull),
		MemoryLimitBytes: limits.Memory, Cpus: int32(len(limits.CPUs)), CpuQuota: float64(limits.Quota) / 1000,
	}
}

// Fields returns the fields for the log.
func (c *Command) Fields() []zap.Field {
	used := c.Group
	if used == nil {
		return nil
	}
	fields := []zap.Field{zap.Duration("cpu", used.User+used.System), zap.Int64("memory_peak", used.MemoryPeak)}
	if used.Throttled > 0 {
		fields = append(fields, zap.Duration("throttled", used.Throttled))
	}
	if c.Cause == runner.OutOfMemory {
		fields = append(fields, zap.Int64("oom_kills", used.OOMKills), zap.Int64("memory_limit", c.Limits.Memory))
	}
	return fields
}
