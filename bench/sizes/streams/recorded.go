package streams

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/forerunner-build/forerunner/bench/sizes/command"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
)

const (
	// recordedJobs is the number of jobs of a stream of recorded commands, until its last build is
	// complete.
	recordedJobs = builds * perBuild
	// mostDrift limits how much the work of a recorded action changes in all.
	mostDrift = 1.5
	// mostEdited is the largest number of actions of an incremental build.
	mostEdited = 12
)

// Recorded returns the streams that play a recording.
func Recorded(r *recording.Recording) []Stream {
	of := func(name, about string, new, clean float64) Stream {
		return Stream{Name: name, About: about, MemoryMiB: r.MemoryMiB, new: new, recorded: r, clean: clean}
	}
	return []Stream{
		of("recorded_clean", "recorded commands, all of them in each build", 0, 1),
		of("recorded_edits", "recorded commands, 1 to 12 of them in each build", 0, 0),
		of("recorded_new", "both, 10 % new actions", 0.1, 0.1),
	}
}

// A target is an action that runs a recorded command.
type target struct {
	command recording.Command
	factor  float64 // of its work
	drift   float64
	day     int // up to which it has drifted
}

// A project makes the builds of one stream.
type project struct {
	Stream
	random  *rand.Rand
	targets []*target
}

// play returns the jobs of a stream of recorded commands.
func (s Stream) play(seed uint64) (jobs []Job) {
	p := &project{Stream: s, random: rand.New(rand.NewPCG(seed, 13))}
	for _, i := range p.random.Perm(len(s.recorded.Commands)) {
		p.targets = append(p.targets, &target{command: s.recorded.Commands[i], factor: 1, drift: 1})
	}
	for at := 0.; len(jobs) < recordedJobs; {
		build := p.build(at)
		for i := range build {
			build[i].After = time.Duration(at * 24 * float64(time.Hour))
		}
		if p.random.Float64() < failingBuilds {
			p.fail(&build[p.random.IntN(len(build))])
		}
		jobs = append(jobs, build...)
		// The more a build runs, the later is the next one.
		at += p.random.ExpFloat64() * float64(len(build)) / recordedJobs * days
	}
	return jobs
}

// build returns the jobs of one build: all actions, or some of which some are frequent.
func (p *project) build(day float64) (jobs []Job) {
	chosen := p.random.Perm(len(p.targets))
	if p.random.Float64() >= p.clean {
		seen := map[int]bool{}
		for range 1 + p.random.IntN(mostEdited) {
			seen[len(p.targets)-1-int(float64(len(p.targets))*math.Pow(p.random.Float64(), 2))] = true
		}
		kept := chosen[:0]
		for _, i := range chosen {
			if seen[i] {
				kept = append(kept, i)
			}
		}
		chosen = kept
	}
	for _, i := range chosen {
		if p.random.Float64() < p.new {
			i = len(p.targets)
			p.targets = append(p.targets, &target{
				command: p.recorded.Commands[p.random.IntN(len(p.recorded.Commands))],
				factor:  between(p.random, 0.5, 2), drift: 1, day: int(day),
			})
		}
		t := p.targets[i]
		for ; t.day < int(day); t.day++ {
			t.drift = min(max(t.drift*p.variance(t.command), 1/mostDrift), mostDrift)
		}
		jobs = append(jobs, Job{Action: i, Kind: t.command.Kind, Command: played{
			runs: t.command.Rounds[p.random.IntN(len(t.command.Rounds))], factor: t.factor * t.drift,
		}})
	}
	return jobs
}

// variance draws the ratio of the CPU times of two rounds of a command.
func (p *project) variance(c recording.Command) float64 {
	seconds := func() float64 {
		runs := c.Rounds[p.random.IntN(len(c.Rounds))]
		return max(runs[len(runs)-1].CPUSeconds, 0.01)
	}
	return seconds() / seconds()
}

// fail has a job fail by its own fault.
func (p *project) fail(j *Job) {
	c := j.Command.(played)
	c.fails = 0.01 + 0.99*p.random.Float64()
	j.Command, j.Fails = c, true
}

// A played command runs as in one round of a recording. It runs out of memory where it did, however
// much memory the machine has.
type played struct {
	runs   []recording.Run // with ascending CPUs
	factor float64         // of its work
	fails  float64         // share of its time after which it fails by its own fault; 0: never
}

// On returns the recorded figures for the CPUs of a machine. Between two sizes it interpolates: the
// logarithms of figures are linear in that of CPUs.
func (p played) On(m command.Machine) command.Result {
	i := 0
	for i < len(p.runs)-1 && p.runs[i].CPUs < m.CPUs {
		i++
	}
	r := resultOf(p.runs[i])
	if i > 0 && p.runs[i].CPUs > m.CPUs {
		below := resultOf(p.runs[i-1])
		if below.End == command.Done || r.End != command.Done {
			from, to := math.Log(float64(p.runs[i-1].CPUs)), math.Log(float64(p.runs[i].CPUs))
			r = mix(below, r, (math.Log(float64(m.CPUs))-from)/(to-from))
		}
	}
	by := p.factor
	if p.fails > 0 && r.End == command.Done {
		r.End, by = command.Failed, by*p.fails
	}
	for _, seconds := range []*float64{&r.Seconds, &r.CPUSeconds, &r.StalledSeconds, &r.FullSeconds, &r.ContendedSeconds} {
		*seconds *= by
	}
	return r
}

func resultOf(r recording.Run) command.Result {
	ends := map[recording.End]command.End{recording.Done: command.Done, recording.Failed: command.Failed, recording.Killed: command.Killed}
	return command.Result{
		End: ends[r.End], Seconds: r.Seconds, CPUSeconds: r.CPUSeconds, PeakMiB: r.PeakMiB,
		StalledSeconds: r.StalledSeconds, FullSeconds: r.StalledSeconds, ContendedSeconds: r.ThrottledSeconds,
	}
}

// mix interpolates from a, at 0, to b, at 1. The end is b's.
func mix(a, b command.Result, at float64) command.Result {
	between := func(a, b float64) float64 {
		if a <= 0 || b <= 0 {
			return a + (b-a)*at
		}
		return a * math.Pow(b/a, at)
	}
	return command.Result{
		End: b.End, Seconds: between(a.Seconds, b.Seconds), CPUSeconds: between(a.CPUSeconds, b.CPUSeconds),
		PeakMiB: between(a.PeakMiB, b.PeakMiB), StalledSeconds: between(a.StalledSeconds, b.StalledSeconds),
		FullSeconds: between(a.FullSeconds, b.FullSeconds), ContendedSeconds: between(a.ContendedSeconds, b.ContendedSeconds),
	}
}
