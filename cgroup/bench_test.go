package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// BenchmarkStart compares /bin/true started in no group, in a v2 group and in a v1 one.
func BenchmarkStart(b *testing.B) {
	run := func(b *testing.B, fd int) error {
		attr := &os.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: fd >= 0, CgroupFD: max(fd, 0)}}
		p, err := os.StartProcess("/bin/true", []string{"true"}, attr)
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}
	b.Run("none", func(b *testing.B) {
		for b.Loop() {
			if err := run(b, -1); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, v := range []int{2, 1} {
		b.Run(fmt.Sprintf("v%d", v), func(b *testing.B) {
			s := newSlot(b, v)
			for b.Loop() {
				if err := s.Start(func(fd int) error { return run(b, fd) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkKill100 ends a hundred sleeping processes.
func BenchmarkKill100(b *testing.B) {
	for _, v := range []int{2, 1} {
		b.Run(fmt.Sprintf("v%d", v), func(b *testing.B) {
			s := newSlot(b, v)
			for b.Loop() {
				b.StopTimer()
				var cmds []*exec.Cmd
				for range 100 {
					cmds = append(cmds, startIn(b, s, "sleep", "1000"))
				}
				b.StartTimer()
				if err := s.Kill(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				for _, c := range cmds {
					_ = c.Wait() // killed, as it should be
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkMeter measures the cost of reading the figures of an action.
func BenchmarkMeter(b *testing.B) {
	for _, v := range []int{2, 1} {
		b.Run(fmt.Sprintf("v%d", v), func(b *testing.B) {
			m, err := newSlot(b, v).Meter()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := m.Begin(); err != nil {
					b.Fatal(err)
				}
				if _, err := m.End(); err != nil {
					b.Fatal(err)
				}
			}
			if err := m.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkSlot measures the cost of a new group with all controllers for each action.
func BenchmarkSlot(b *testing.B) {
	for _, v := range []int{2, 1} {
		b.Run(fmt.Sprintf("v%d", v), func(b *testing.B) {
			p := openParent(b, Options{Name: testName(b), Version: v})
			for b.Loop() {
				s, err := p.Slot("0")
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Limit(Limits{CPUs: []int{0}, Memory: 1 << 30, Pids: 100}); err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSettleThread is a round trip between the groups of v1 controllers.
func BenchmarkSettleThread(b *testing.B) {
	s := newSlot(b, 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		if err := s.SettleThread(); err != nil {
			b.Fatal(err)
		}
		for _, group := range s.handle.Threads {
			if err := moveThread(filepath.Dir(filepath.Dir(filepath.Dir(group)))); err != nil {
				b.Fatal(err)
			}
		}
	}
}
