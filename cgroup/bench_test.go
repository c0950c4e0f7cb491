package cgroup

import (
	"fmt"
	"os"
	"os/exec"
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
