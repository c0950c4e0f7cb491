package command

import "math"

// A Machine is the part of a worker that a command may use.
type Machine struct {
	CPUs      int
	MemoryMiB float64
}

// A Command is a sequence of phases and the memory that they share.
type Command struct {
	Phases []Phase
	// ResidentMiB is memory that the command cannot give back. A machine with less memory kills the
	// command.
	ResidentMiB float64
	Heap        Heap
	// FilesMiB is the size of the command's files. Every page is equally likely to be touched.
	FilesMiB float64
	// Warm: the pages were in memory before, if there is room for all. They then count as the
	// memory of another process.
	Warm bool
	// Fails is the share of its work after which the command fails by its own fault; 0: never.
	Fails float64
}

// A Phase is a queue of tasks, and threads that take tasks from it. The next phase begins when all
// tasks are done.
type Phase struct {
	// WaitSeconds is idle time at the start.
	WaitSeconds float64
	// Tasks has the CPU seconds of each task, in order.
	Tasks []float64
	// Threads is the number of threads; 0: one for each CPU of the machine.
	Threads int
	// AllocMiB is the heap memory allocated per CPU second, TouchMiB the file pages touched per CPU
	// second.
	AllocMiB, TouchMiB float64
}

// A Heap is memory with a garbage collector.
type Heap struct {
	// LiveMiB is the live memory at the end; it grows in proportion to the work.
	LiveMiB float64
	// Share limits the heap to a share of the machine's memory; 0: there is no heap.
	Share float64
	// MostMiB limits the heap on any machine; 0: no limit.
	MostMiB float64
}

// End is how a command ends.
type End int

// All ends of a command.
const (
	Done   End = iota
	Failed     // by its own fault, or because its heap is too small
	Killed     // it needs more memory than the machine has
)

// A Result is the outcome of a run.
type Result struct {
	End                 End
	Seconds, CPUSeconds float64
	// PeakMiB is the peak of memory. It includes files in memory, but warm ones only if they do not
	// all fit.
	PeakMiB float64
	// StalledSeconds is how long at least one thread waited for pages that had to be read again,
	// FullSeconds how long all threads did. ContendedSeconds is how long a thread waited for a CPU.
	StalledSeconds, FullSeconds, ContendedSeconds float64
}

const (
	// diskMiBps is the speed of reading pages from the disk, for all threads together.
	diskMiBps = 250.
	// collectMiBps is how fast one CPU collects live memory; collection uses up to mostCollectors
	// CPUs.
	collectMiBps, mostCollectors = 800., 4
	// leastFree is the share of the heap that must be free after a collection.
	leastFree = 0.04
	// leastCache is the share of the machine's memory that must remain for files.
	leastCache = 0.01
	// switching is the share of CPU time that is lost for each thread per CPU beyond the first.
	switching = 0.02
)

// A process is a running command.
type process struct {
	Command
	machine     Machine
	work, whole float64 // CPU seconds done, and in total
	garbage     float64 // MiB since the last collection
	result      Result
}

// On runs the command on a machine.
func (c Command) On(m Machine) Result {
	p := &process{Command: c, machine: m}
	for _, phase := range c.Phases {
		for _, task := range phase.Tasks {
			p.whole += task
		}
	}
	for _, phase := range c.Phases {
		p.result.Seconds += phase.WaitSeconds
		if p.result.End = p.phase(phase); p.result.End != Done {
			break
		}
	}
	return p.result
}

// heap returns the limit of the heap.
func (p *process) heap() float64 {
	most := p.Heap.Share * p.machine.MemoryMiB
	if p.Heap.MostMiB > 0 {
		most = min(most, p.Heap.MostMiB)
	}
	return most
}

func (p *process) live() float64 { return p.Heap.LiveMiB * p.work / p.whole }

// phase runs a phase to its end, from one event to the next: the end of a task, or a collection.
func (p *process) phase(phase Phase) End {
	tasks, threads := phase.Tasks, phase.Threads
	if threads == 0 {
		threads = p.machine.CPUs
	}
	var running []float64 // remaining CPU seconds of each running task
	for {
		for len(running) < threads && len(tasks) > 0 {
			running, tasks = append(running, tasks[0]), tasks[1:]
		}
		if len(running) == 0 {
			return Done
		}
		if p.Fails > 0 && p.work >= p.Fails*p.whole-1e-9 {
			return Failed
		}
		pace, end := p.pace(phase, float64(len(running)))
		if end != Done {
			return end
		}
		next := math.Inf(1)
		for _, left := range running {
			next = min(next, left)
		}
		all := float64(len(running))
		if p.Fails > 0 {
			next = min(next, (p.Fails*p.whole-p.work)/all)
		}
		if phase.AllocMiB > 0 && p.Heap.Share > 0 {
			free := p.heap() - p.live()
			if free < leastFree*p.heap() {
				return Failed
			}
			next = min(next, max(free-p.garbage, 0)/(phase.AllocMiB+p.Heap.LiveMiB/p.whole)/all)
		}
		p.advance(phase, pace, next, all)
		left := running[:0]
		for _, r := range running {
			if r -= next; r > 1e-9 {
				left = append(left, r)
			}
		}
		running = left
		p.collect()
	}
}

// A pace is the speed of each thread.
type pace struct {
	rate         float64 // CPU seconds per second
	stalled, all float64 // probability that at least one thread waits for the disk, and that all do
}

// pace returns the pace of n threads in a phase. The End is not Done if memory does not suffice.
func (p *process) pace(phase Phase, n float64) (pace, End) {
	cache := p.machine.MemoryMiB - p.used() // memory that remains for files
	if cache < leastCache*p.machine.MemoryMiB {
		return pace{}, Killed
	}
	cpus := float64(p.machine.CPUs)
	share := min(1, cpus/n) * (1 - min(switching*max(n/cpus-1, 0), 0.5))
	missing := 0.
	if p.FilesMiB > 0 {
		missing = max(1-cache/p.FilesMiB, 0)
	}
	disk := phase.TouchMiB * missing / diskMiBps // seconds per CPU second
	if disk == 0 {
		return pace{rate: share}, Done
	}
	rate := min(1/(1/share+disk), 1/(n*disk))
	waits := 1 - rate/share
	return pace{rate: rate, stalled: 1 - math.Pow(1-waits, n), all: math.Pow(waits, n)}, Done
}

func (p *process) used() float64 { return p.ResidentMiB + p.live() + p.garbage }

// advance lets each of n threads do cpu seconds of work.
func (p *process) advance(phase Phase, at pace, cpu, n float64) {
	seconds := cpu / at.rate
	p.result.Seconds += seconds
	p.result.StalledSeconds += seconds * at.stalled
	p.result.FullSeconds += seconds * at.all
	if n > float64(p.machine.CPUs) {
		p.result.ContendedSeconds += seconds
	}
	p.result.CPUSeconds += cpu * n
	p.work += cpu * n
	if p.Heap.Share > 0 {
		p.garbage += cpu * n * phase.AllocMiB
	}
	peak := min(p.used()+p.FilesMiB, p.machine.MemoryMiB)
	if p.Warm && peak < p.machine.MemoryMiB {
		peak = p.used()
	}
	p.result.PeakMiB = max(p.result.PeakMiB, peak)
}

// collect frees garbage if the heap is full. The threads are stopped meanwhile.
func (p *process) collect() {
	if p.Heap.Share == 0 || p.garbage < p.heap()-p.live()-1e-6 {
		return
	}
	cpu := (1 + p.live()) / collectMiBps
	p.result.CPUSeconds += cpu
	p.result.Seconds += cpu / float64(min(p.machine.CPUs, mostCollectors))
	p.garbage = 0
}
