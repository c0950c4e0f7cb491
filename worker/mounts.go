package worker

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/worker/uncharged"
)

const (
	// mostMounts may be in one mount namespace. The kernel has one lock for all mounts of the
	// machine, and holds it while it copies those of a namespace or a folder: for 10,000 some 30 ms.
	mostMounts = 1 << 12
	// mostMounting may wait for that lock at the same time, each one copy long: whoever mounts
	// after them waits for all.
	mostMounting = 64
	// looksForOne is how many looks there are for each that asks who waits, which takes longer.
	looksForOne = 10
)

// A mountWatch sees whether a command keeps others from mounting, as each action must.
type mountWatch struct {
	// fullest and waiting are the functions of package uncharged.
	fullest, waiting func(pids []int, most int) int
	looks            int  // so far
	slow             bool // the last one waited, perhaps for the command's own mounts
}

func newMountWatch() mountWatch {
	return mountWatch{fullest: uncharged.FullestNamespace, waiting: uncharged.WaitToMount}
}

// look returns what the command has too much of.
func (m *mountWatch) look(pids []int) *excess {
	seldom, began := m.slow || m.looks%looksForOne == 0, time.Now()
	m.looks++
	defer func() { m.slow = time.Since(began) > unchargedInterval }()
	switch {
	case seldom && m.waiting(pids, mostMounting+1) > mostMounting:
		return &excess{fmt.Sprintf("%d mounts at a time", mostMounting), true}
	case m.fullest(pids, mostMounts+1) > mostMounts:
		return &excess{fmt.Sprintf("%d mounts in a namespace", mostMounts), true}
	}
	return nil
}
