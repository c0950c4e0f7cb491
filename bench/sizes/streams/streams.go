package streams

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/forerunner-build/forerunner/bench/sizes/command"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
)

const (
	builds, perBuild = 100, 40
	days             = 4.
	// firstActions is the number of actions at the start.
	firstActions = 120
	// failingBuilds is the share of builds with an action that fails on every class.
	failingBuilds = 0.05
	longestHours  = 2
)

// JobsPerBuild is the number of consecutive jobs that form a build.
const JobsPerBuild = perBuild

// A Stream makes jobs of one kind.
type Stream struct {
	// Name is part of the names of rows. About describes the commands.
	Name, About string
	// MemoryMiB is the memory for each CPU of the machines; 0: any.
	MemoryMiB float64
	// new is the share of jobs with a new action. changes is the probability that an action changes
	// completely on a day.
	new, changes float64
	shape        shape
	// recorded has the commands of a stream that plays a recording; nil: it does not. clean is the
	// share of its builds that run all actions.
	recorded *recording.Recording
	clean    float64
}

// A Command runs on a machine: the same one always in the same way.
type Command interface {
	On(command.Machine) command.Result
}

// A Job is one run of an action.
type Job struct {
	// Action is the number of the action. Kind is the same for similar actions, like a mnemonic.
	Action  int
	Kind    string
	After   time.Duration // time since the start of the stream
	Command Command
	Fails   bool // by its own fault, on every machine
}

// A shape makes a program, which the runs of one action have in common.
type shape func(r *rand.Rand) (kind string, p program)

// A program makes the command of one run. day counts from the start of the stream.
type program func(r *rand.Rand, day float64) command.Command

// An action is an action that runs again and again.
type action struct {
	kind string
	program
	day int // up to which it has changed
}

// A source makes the jobs of one stream.
type source struct {
	Stream
	random  *rand.Rand
	actions []*action
}

// Jobs returns the jobs for a seed in order of time.
func (s Stream) Jobs(seed uint64) (jobs []Job) {
	if s.recorded != nil {
		return s.play(seed)
	}
	from := &source{Stream: s, random: rand.New(rand.NewPCG(seed, 11))}
	for range firstActions {
		from.add(0)
	}
	at := 0.
	for range builds {
		at += from.random.ExpFloat64() * days / builds
		failing := -1
		if from.random.Float64() < failingBuilds {
			failing = from.random.IntN(perBuild)
		}
		for i := range perBuild {
			j, c := from.job(at)
			j.After = time.Duration(at * 24 * float64(time.Hour))
			if j.Fails = i == failing; j.Fails {
				c.Fails = from.random.Float64()
			}
			j.Command = c
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (s *source) add(day float64) {
	kind, p := s.shape(s.random)
	s.actions = append(s.actions, &action{kind, p, int(day)})
}

// job returns a job without its command, and the command.
func (s *source) job(day float64) (Job, command.Command) {
	// Recent actions run more often.
	i := len(s.actions) - 1 - int(float64(len(s.actions))*math.Pow(s.random.Float64(), 2))
	if s.random.Float64() < s.new {
		i = len(s.actions)
		s.add(day)
	}
	a := s.actions[i]
	for ; a.day < int(day); a.day++ {
		if s.random.Float64() < s.changes {
			a.kind, a.program = s.shape(s.random)
		}
	}
	return Job{Action: i, Kind: a.kind}, a.program(s.random, day)
}

// pareto draws from a Pareto distribution with a minimum and an alpha.
func pareto(r *rand.Rand, least, alpha float64) float64 {
	return min(least*math.Pow(1-r.Float64(), -1/alpha), longestHours*3600)
}

// between draws a number whose logarithm is distributed evenly.
func between(r *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, r.Float64())
}

// noise draws a log-normal factor with median 1.
func noise(r *rand.Rand, of float64) float64 { return math.Exp(of * r.NormFloat64()) }

// split returns n tasks of unequal length that add up to seconds.
func split(r *rand.Rand, seconds float64, n int) []float64 {
	tasks, sum := make([]float64, n), 0.
	for i := range tasks {
		tasks[i] = 0.3 + r.ExpFloat64()
		sum += tasks[i]
	}
	for i := range tasks {
		tasks[i] *= seconds / sum
	}
	return tasks
}

func single(seconds float64) command.Phase {
	return command.Phase{Tasks: []float64{seconds}, Threads: 1}
}
