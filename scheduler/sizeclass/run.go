package sizeclass

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/runs"
)

// Outcome is how a run ended.
type Outcome uint8

// The outcomes of runs.
const (
	Succeeded Outcome = iota + 1
	TimedOut
	Failed
	OutOfMemory
)

// String returns the name of o in lower case.
func (o Outcome) String() string {
	switch o {
	case Succeeded:
		return "succeeded"
	case TimedOut:
		return "timed out"
	case Failed:
		return "failed"
	case OutOfMemory:
		return "ran out of memory"
	}
	return "unknown"
}

// A Run is a worker's report of a completed run. Only Duration is required; zero stands for
// unknown.
type Run struct {
	// Duration is execution time less the time spent waiting for storage.
	Duration time.Duration
	// CPU is user and system time of all processes.
	CPU time.Duration
	// CPUs and MemoryLimitBytes are the resources of the run. If CPUs is unknown, it is assumed to
	// be the size class.
	CPUs             float64
	MemoryLimitBytes int64
	PeakMemoryBytes  int64
	// MemoryStall is how long the command waited for memory: for pages that had to be read again, and
	// to reclaim others.
	MemoryStall time.Duration
	// Throttled is how long threads that could run did not, because the command had used up its CPU
	// bandwidth.
	Throttled time.Duration
}

// A run is one on a class, seen or thought.
type run struct {
	class   uint32
	outcome Outcome
	Run
	action uint64 // distinguishes similar actions
}

// parseRuns returns the runs of an encoded forerunner.runs.Record. It skips unreadable ones.
func parseRuns(value []byte) []run {
	var record runs.Record
	if proto.Unmarshal(value, &record) != nil {
		return nil
	}
	var list []run
	for _, m := range record.GetRuns() {
		r := run{
			class: m.GetSizeClass(), outcome: Outcome(m.GetOutcome()), action: m.GetAction(),
			Run: Run{
				Duration: time.Duration(m.GetDurationNanoseconds()), CPU: time.Duration(m.GetCpuNanoseconds()), CPUs: m.GetCpus(),
				MemoryLimitBytes: m.GetMemoryLimitBytes(), PeakMemoryBytes: m.GetPeakMemoryBytes(),
				MemoryStall: time.Duration(m.GetMemoryStallNanoseconds()), Throttled: time.Duration(m.GetThrottledNanoseconds()),
			},
		}
		if m.GetOutcome() >= 0 && m.GetOutcome() <= 255 && r.valid() {
			list = append(list, r)
		}
	}
	return list
}

func marshalRuns(list []run) ([]byte, error) {
	record := &runs.Record{}
	for _, r := range list {
		record.Runs = append(record.Runs, r.message())
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(record)
}

func (r run) message() *runs.Run {
	return &runs.Run{
		SizeClass: r.class, Outcome: runs.Outcome(r.outcome),
		DurationNanoseconds: int64(r.Duration), CpuNanoseconds: int64(r.CPU), Cpus: r.CPUs,
		PeakMemoryBytes: r.PeakMemoryBytes, MemoryLimitBytes: r.MemoryLimitBytes, Action: r.action,
		MemoryStallNanoseconds: int64(r.MemoryStall), ThrottledNanoseconds: int64(r.Throttled),
	}
}

func (r run) valid() bool {
	return r.outcome >= Succeeded && r.outcome <= OutOfMemory && r.Run == r.sane()
}

// maxDuration is longer than anything runs; sums and multiples of it are still durations.
const maxDuration = 365 * 24 * time.Hour

// sane returns r without invalid values.
func (r Run) sane() Run {
	r.Duration = min(max(r.Duration, 0), maxDuration)
	r.CPU = min(max(r.CPU, 0), 100*maxDuration)
	r.PeakMemoryBytes = max(r.PeakMemoryBytes, 0)
	r.MemoryLimitBytes = max(r.MemoryLimitBytes, 0)
	r.MemoryStall = min(max(r.MemoryStall, 0), r.Duration)
	r.Throttled = min(max(r.Throttled, 0), r.Duration)
	if !(r.CPUs > 0 && r.CPUs < 1e6) {
		r.CPUs = 0
	}
	return r
}

// last returns the last n of list.
func last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// classOf returns a class as a number to divide by; workers that know of no classes are in 0.
func classOf(class uint32) float64 { return math.Max(float64(class), 1) }
