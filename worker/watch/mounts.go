package watch

import (
	"context"
	"fmt"

	"github.com/forerunner-build/forerunner/worker/uncharged"
)

// mostMounts limits the mounts in one mount namespace. The kernel has one lock for all mounts of
// the machine, and holds it while it copies the mounts of a namespace or a folder: for 10,000
// mounts some 30 ms. A sandbox limits the number of namespaces that can be copied.
const mostMounts = 1 << 12

// lookAtMounts reports whether the command keeps others from mounting, which each action must do.
// It may wait for other mounts, if a namespace is full or if an older kernel does not report.
func (w *Watch) lookAtMounts(context.Context) *Overuse {
	if crowded, err := w.objects.crowded.get(); !crowded && err == nil {
		return nil
	}
	if pids := w.command.Processes(); uncharged.FullestNamespace(pids, mostMounts+1) <= mostMounts {
		return nil
	}
	return &Overuse{fmt.Sprintf("%d mounts in a namespace", mostMounts), true}
}
