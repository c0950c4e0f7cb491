package watch

import (
	"context"
	"fmt"

	"github.com/forerunner-build/forerunner/worker/uncharged"
)

// mostMounts may be in one mount namespace. The kernel has one lock for all mounts of the machine,
// and holds it while it copies those of a namespace or a folder: for 10,000 some 30 ms. A sandbox
// bounds how many namespaces there are to copy.
const mostMounts = 1 << 12

// lookAtMounts returns whether the command keeps others from mounting, as each action must. It may
// wait for those who mount, if there is a full namespace anywhere or an older kernel does not tell.
func (w *Watch) lookAtMounts(context.Context) *Overuse {
	if crowded, err := w.objects.crowded.get(); !crowded && err == nil {
		return nil
	}
	if pids := w.command.Processes(); uncharged.FullestNamespace(pids, mostMounts+1) <= mostMounts {
		return nil
	}
	return &Overuse{fmt.Sprintf("%d mounts in a namespace", mostMounts), true}
}
