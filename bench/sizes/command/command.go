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
	// ResidentMiB cannot be given back: a machine with less kills the command.
	ResidentMiB float64
	Heap        Heap
	// FilesMiB are pages of files, each as likely to be touched as the others.
	FilesMiB float64
	// Warm: the pages were in memory before, where there is room for all, and count as another's.
	Warm bool
	// Fails is the share of its work after which the command fails by its own fault; 0: it does not.
	Fails float64
}

// A Phase is a queue of tasks and the threads that take from it. The next phase begins when all are
// done.
type Phase struct {
	// WaitSeconds pass at the start, without work.
	WaitSeconds float64
	// Tasks are the CPU seconds of each, in order.
	Tasks []float64
	// Threads is how many there are; 0 is as many as the machine has CPUs.
	Threads int
	// AllocMiB is what each CPU second takes from the heap, TouchMiB what it touches of the files.
	AllocMiB, TouchMiB float64
}

// A Heap is memory with a garbage collector.
type Heap struct {
	// LiveMiB is in use at the end; it grows with the work.
	LiveMiB float64
	// Share of the machine's memory is the most that the heap takes; 0: there is no heap.
	Share float64
	// MostMiB limits it on any machine; 0: no limit.
	MostMiB float64
}

// End is how a command ends.
type End int

// The ends of a command.
const (
	Done   End = iota
	Failed     // by its own fault, or because its heap is too small
	Killed     // it needs more memory than there is
)

// A Result is what a run came to.
type Result struct {
	End                 End
	Seconds, CPUSeconds float64
	// PeakMiB includes files in memory, but warm ones only if they do not fit.
	PeakMiB float64
	// StalledSeconds is how long at least one thread waited for pages that had to be read again, and
	// FullSeconds how long all did. ContendedSeconds is how long a thread waited for a CPU.
	StalledSeconds, FullSeconds, ContendedSeconds float64
}

const (
	// diskMiBps is how fast pages come from the disk, for all threads together.
	diskMiBps = 250.
	// collectMiBps is how fast one CPU collects what is live, on up to mostCollectors CPUs.
	collectMiBps, mostCollectors = 800., 4
	// leastFree is the share of the heap that must be free after a collection.
	leastFree = 0.04
	// leastCache is the share of the machine's memory that must be left for files.
	leastCache = 0.01
	// switching is the share of the CPUs that each further thread for each CPU costs.
	switching = 0.02
)

// A process is a command while it runs.
type process struct {
	Command
	machine     Machine
	work, whole float64 // CPU seconds done, and in all
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

// heap is the most that the heap may take.
func (p *process) heap() float64 {
	most := p.Heap.Share * p.machine.MemoryMiB
	if p.Heap.MostMiB > 0 {
		most = min(most, p.Heap.MostMiB)
	}
	return most
}

func (p *process) live() float64 { return p.Heap.LiveMiB * p.work / p.whole }

// phase runs one to its end, from one event to the next: a task that ends, or a collection.
func (p *process) phase(phase Phase) End {
	tasks, threads := phase.Tasks, phase.Threads
	if threads == 0 {
		threads = p.machine.CPUs
	}
	var running []float64 // CPU seconds left of each
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

// A pace is how fast each thread works.
type pace struct {
	rate         float64 // CPU seconds a second
	stalled, all float64 // how likely at least one waits for the disk, and all
}

// pace is that of n threads in a phase. The end is another than Done if memory does not suffice.
func (p *process) pace(phase Phase, n float64) (pace, End) {
	cache := p.machine.MemoryMiB - p.used() // what is left for files
	if cache < leastCache*p.machine.MemoryMiB {
		return pace{}, Killed
	}
	cpus := float64(p.machine.CPUs)
	share := min(1, cpus/n) * (1 - min(switching*max(n/cpus-1, 0), 0.5))
	missing := 0.
	if p.FilesMiB > 0 {
		missing = max(1-cache/p.FilesMiB, 0)
	}
	disk := phase.TouchMiB * missing / diskMiBps // seconds for each CPU second
	if disk == 0 {
		return pace{rate: share}, Done
	}
	rate := min(1/(1/share+disk), 1/(n*disk))
	waits := 1 - rate/share
	return pace{rate: rate, stalled: 1 - math.Pow(1-waits, n), all: math.Pow(waits, n)}, Done
}

func (p *process) used() float64 { return p.ResidentMiB + p.live() + p.garbage }

// advance lets each of n threads do some CPU seconds of work.
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

// collect frees garbage if the heap is full. Nothing else runs meanwhile.
func (p *process) collect() {
	if p.Heap.Share == 0 || p.garbage < p.heap()-p.live()-1e-6 {
		return
	}
	cpu := (1 + p.live()) / collectMiBps
	p.result.CPUSeconds += cpu
	p.result.Seconds += cpu / float64(min(p.machine.CPUs, mostCollectors))
	p.garbage = 0
}
