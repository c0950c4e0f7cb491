package streams

import (
	"reflect"
	"testing"

	"github.com/forerunner-build/forerunner/bench/sizes/command"
)

func machine(cpus int) command.Machine {
	return command.Machine{CPUs: cpus, MemoryMiB: 4096 * float64(cpus)}
}

// TestStreamsShowWhatTheyAreAbout runs the jobs of each stream on a small and on a large machine.
// Enough of them must show the behaviour that the stream is for.
func TestStreamsShowWhatTheyAreAbout(t *testing.T) {
	shows := map[string]func(small, large command.Result) bool{
		"tails":  func(_, large command.Result) bool { return large.Seconds > 20 },
		"pools":  func(small, large command.Result) bool { return large.Seconds > small.Seconds/3 },
		"heaps":  func(small, large command.Result) bool { return small.CPUSeconds > large.CPUSeconds*1.1 },
		"thrash": func(small, large command.Result) bool { return small.StalledSeconds > 2*large.Seconds },
		"long":   func(_, large command.Result) bool { return large.Seconds > 60 },
		"drift":  func(small, _ command.Result) bool { return small.End == command.Killed },
		"new3":   func(small, _ command.Result) bool { return small.StalledSeconds > 0 },
		"new10":  func(small, _ command.Result) bool { return small.StalledSeconds > 0 },
		"new30":  func(small, _ command.Result) bool { return small.StalledSeconds > 0 },
	}
	for _, s := range All() {
		jobs := s.Jobs(1)
		if again := s.Jobs(1); !reflect.DeepEqual(jobs, again) {
			t.Errorf("%s: the same seed gives other jobs", s.Name)
		}
		if reflect.DeepEqual(jobs, s.Jobs(2)) {
			t.Errorf("%s: another seed gives the same jobs", s.Name)
		}
		count, most, shown := len(jobs), 0, 0
		for _, j := range jobs {
			most = max(most, j.Action)
			small, large := j.Command.On(machine(1)), j.Command.On(machine(8))
			if ok := large.End == command.Done; ok == j.Fails || large.Seconds <= 0 {
				t.Fatalf("%s: %+v ends as %+v on the largest machine", s.Name, j, large)
			}
			if shows[s.Name](small, large) {
				shown++
			}
		}
		if least := firstActions + int(s.new*float64(count)*0.8); count != builds*perBuild || most < least || most > 2*least {
			t.Errorf("%s: %d jobs of %d actions", s.Name, count, most)
		}
		if shown < count/50 {
			t.Errorf("%s: %d of %d jobs show it", s.Name, shown, count)
		}
	}
}
