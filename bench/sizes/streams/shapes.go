package streams

import (
	"math"
	"math/rand/v2"

	"github.com/forerunner-build/forerunner/bench/sizes/command"
)

// All returns all streams of simulated commands.
func All() []Stream {
	of := func(name, about string, new, changes float64, s shape) Stream {
		return Stream{Name: name, About: about, new: new, changes: changes, shape: s}
	}
	return []Stream{
		of("tails", "durations with heavy tails, also from run to run of one action", 0.03, 0, tails),
		of("pools", "fixed pools of 2 to 6 threads with unequal tasks", 0.03, 0, pools),
		of("heaps", "heaps that take a share of the memory and are collected when they are full", 0.03, 0, heaps),
		of("thrash", "files, half of them warm, that do not fit into small workers and are read again and again", 0.03, 0, thrash),
		of("long", "60 to 600 s: tests with one thread, with some, and with as many as there are CPUs", 0.03, 0, long),
		of("drift", "work and memory grow from day to day, and one action in eight changes completely", 0.03, 0.12, growing),
		of("new3", "all of the above, 3 % new actions", 0.03, 0, mixed),
		of("new10", "the same, 10 % new actions", 0.1, 0, mixed),
		of("new30", "the same, 30 % new actions", 0.3, 0, mixed),
	}
}

// tails makes tests whose work depends on their inputs. A third of them have several threads.
func tails(r *rand.Rand) (string, program) {
	seconds, wide := pareto(r, 0.7, 1.1), r.Float64() < 0.33
	return "Test", func(r *rand.Rand, _ float64) command.Command {
		now := min(seconds*pareto(r, 0.8, 1.8), longestHours*3600)
		c := command.Command{Phases: []command.Phase{single(now)}, ResidentMiB: 200}
		if wide {
			c.Phases = []command.Phase{single(now * 0.2), {Tasks: split(r, now*0.8, 24)}}
		}
		return c
	}
}

// pools makes tools with a fixed number of threads, whatever the machine has.
func pools(r *rand.Rand) (string, program) {
	seconds, serial := between(r, 3, 60), between(r, 0.03, 0.3)
	threads, tasks := []int{2, 2, 3, 4, 6}[r.IntN(5)], 4+r.IntN(40)
	return "Bundle", func(r *rand.Rand, _ float64) command.Command {
		now := seconds * noise(r, 0.1)
		return command.Command{
			Phases: []command.Phase{
				single(now * serial),
				{Tasks: split(r, now*(1-serial), tasks), Threads: threads},
			},
			ResidentMiB: 400,
		}
	}
}

// heaps makes compilers with a garbage collector. Some limit their own heap.
func heaps(r *rand.Rand) (string, program) {
	seconds, live, alloc := between(r, 3, 50), between(r, 60, 2500), between(r, 100, 900)
	wide, share, most := r.Float64() < 0.5, []float64{0.25, 0.5, 0.75}[r.IntN(3)], 0.
	if r.Float64() < 0.25 {
		most = between(r, 1.3, 3) * live
	}
	return "Javac", func(r *rand.Rand, _ float64) command.Command {
		now, live := seconds*noise(r, 0.1), live*noise(r, 0.04)
		c := command.Command{
			Phases: []command.Phase{single(now * 0.25), {
				Tasks: split(r, now*0.75, 16), Threads: 1, AllocMiB: alloc,
			}},
			ResidentMiB: 180, Heap: command.Heap{LiveMiB: live, Share: share, MostMiB: most},
		}
		if wide {
			c.Phases[1].Threads = 0
		}
		return c
	}
}

// thrash makes linkers: most of their memory is files, which may not fit.
func thrash(r *rand.Rand) (string, program) {
	seconds, resident, files := between(r, 2, 60), between(r, 200, 3000), between(r, 1500, 8000)
	touch, threads, warm := between(r, 100, 3000), []int{1, 1, 1, 2, 4}[r.IntN(5)], r.Float64() < 0.5
	return "Link", func(r *rand.Rand, _ float64) command.Command {
		now := seconds * noise(r, 0.1)
		return command.Command{
			Phases:      []command.Phase{{Tasks: split(r, now, 12), Threads: threads, TouchMiB: touch}},
			ResidentMiB: resident * noise(r, 0.02), FilesMiB: files * noise(r, 0.02), Warm: warm,
		}
	}
}

// long makes long tests.
func long(r *rand.Rand) (string, program) {
	seconds, serial := between(r, 60, 600), between(r, 0.05, 0.5)
	threads, waits := []int{1, 1, 2, 4, 8, 0, 0}[r.IntN(7)], r.Float64() < 0.2
	return "LongTest", func(r *rand.Rand, _ float64) command.Command {
		now := seconds * noise(r, 0.08)
		c := command.Command{ResidentMiB: 900}
		if waits {
			c.Phases = append(c.Phases, command.Phase{WaitSeconds: now * 0.4})
		}
		c.Phases = append(c.Phases, single(now*serial), command.Phase{Tasks: split(r, now*(1-serial), 60), Threads: threads})
		return c
	}
}

// growing makes compilers of a growing code base.
func growing(r *rand.Rand) (string, program) {
	seconds, resident, grows := between(r, 1, 40), between(r, 100, 6000), between(r, 0.02, 0.3)
	threads := []int{1, 1, 1, 4, 0}[r.IntN(5)]
	return "Compile", func(r *rand.Rand, day float64) command.Command {
		by := math.Exp(grows * day)
		now := seconds * by * noise(r, 0.1)
		return command.Command{
			Phases:      []command.Phase{single(now * 0.2), {Tasks: split(r, now*0.8, 20), Threads: threads}},
			ResidentMiB: min(resident*by, 25_000),
		}
	}
}

// mixed makes one of the others, most often a compiler with one thread.
func mixed(r *rand.Rand) (string, program) {
	if r.Float64() < 0.4 {
		seconds, resident := pareto(r, 1, 1.6), between(r, 80, 900)
		return "CppCompile", func(r *rand.Rand, _ float64) command.Command {
			return command.Command{
				Phases: []command.Phase{single(seconds * noise(r, 0.1))}, ResidentMiB: resident, FilesMiB: 200,
			}
		}
	}
	return []shape{tails, pools, heaps, thrash, long, growing}[r.IntN(6)](r)
}
