package sizeclass

import (
	"math"
	"slices"
	"time"
)

// work is the work of a run, in seconds. On n CPUs it takes waiting+serial+parallel/n, by Amdahl's
// law; less than a whole CPU slows down serial work.
type work struct{ waiting, serial, parallel float64 }

// onlyOne is the number of CPUs up to which a run says nothing about more CPUs.
const onlyOne = 1.05

// work returns the work of r; it is false if r lacks the data.
func (r run) work() (work, bool) {
	n, took, cpu := r.cpus(), r.Duration.Seconds(), r.CPU.Seconds()
	if r.outcome != Succeeded || cpu <= 0 || n <= onlyOne {
		return work{}, false
	}
	// CPU time beyond the duration came from n CPUs at once.
	parallel := min(max(cpu-took, 0)*n/(n-1), took*n)
	rest := took - parallel/n
	serial := min(max(cpu-parallel, 0), rest)
	return work{rest - serial, serial, parallel}, true
}

// share is the part of the CPU time that ran in parallel.
func (w work) share(r run) float64 { return min(w.parallel/r.CPU.Seconds(), 1) }

// withShare returns the work of r on a single CPU, or less, if this share of its CPU time is
// parallel.
func (r run) withShare(share float64) work {
	n, took := min(r.cpus(), 1), r.Duration.Seconds()
	cpu := min(r.CPU.Seconds(), took*n)
	return work{took - cpu/n, (1 - share) * cpu, share * cpu}
}

// on returns how long w takes on n CPUs.
func (w work) on(n float64) time.Duration {
	seconds := w.waiting + w.serial/min(n, 1) + w.parallel/n
	return time.Duration(min(seconds*1e9, float64(maxDuration)))
}

func (r run) cpus() float64 {
	if r.CPUs > 0 {
		return r.CPUs
	}
	return classOf(r.class)
}

// parallelShare returns the median share of runs, -1 if there is none.
func parallelShare(list []run) float64 {
	var shares []float64
	for _, r := range list {
		if w, ok := r.work(); ok {
			shares = append(shares, w.share(r))
		}
	}
	if len(shares) == 0 {
		return -1
	}
	slices.Sort(shares)
	return shares[len(shares)/2]
}

// memoryFull is the share of the limit above which the peak of a successful run does not show its
// need: the kernel fills free memory with files.
const memoryFull = 0.95

// tight is the share of its duration from which on a run that waits for memory, or for its CPU
// bandwidth, has too little of it.
const tight = 0.05

// pressed reports whether r had too little memory.
func (r run) pressed() bool {
	return r.MemoryStall.Seconds() > tight*r.Duration.Seconds()
}

// relaxed is r with as much memory as it needs. Whether it has that on a class is not known until it
// ran there.
func (r run) relaxed() run {
	r.Duration -= min(r.MemoryStall, r.Duration)
	r.MemoryStall = 0
	return r
}

// outgrows reports whether r used more memory than a worker of a class has, relative to the memory
// of its own worker.
func (r run) outgrows(class uint32) bool {
	limit, peak := float64(r.MemoryLimitBytes), float64(r.PeakMemoryBytes)
	return limit > 0 && peak < memoryFull*limit && peak > limit*classOf(class)/classOf(r.class)
}

// medianDuration returns 0 for none.
func medianDuration(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// acceptable returns how long an action may take on a class that is ratio times smaller than the
// one where it takes d.
func acceptable(d time.Duration, ratio, exponent float64) time.Duration {
	return time.Duration(min(float64(d)*math.Pow(ratio, exponent), float64(maxDuration)))
}
