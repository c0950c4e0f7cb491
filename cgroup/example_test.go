package cgroup_test

import (
	"fmt"

	"github.com/forerunner-build/forerunner/cgroup"
)

// A machine of four CPUs and 9 GiB, divided between two slots. Measure returns the Capacity of the
// machine that the process is on, and Slot.Limit enforces the Limits.
func ExampleCapacity_Divide() {
	machine := cgroup.Capacity{CPUs: []int{0, 1, 2, 3}, Quota: 4000, Memory: 9 << 30, Pids: 32768}
	limits, err := machine.Divide(cgroup.Share{Slots: 2, Memory: 4 << 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range limits {
		fmt.Println("CPUs", l.CPUs, "memory", l.Memory>>30, "GiB, processes", l.Pids)
	}
	_, err = machine.Divide(cgroup.Share{Slots: 2, Memory: 16 << 30})
	fmt.Println(err)
	// Output:
	// CPUs [0 1] memory 4 GiB, processes 4096
	// CPUs [2 3] memory 4 GiB, processes 4096
	// a slot of 17179869184 bytes of memory is larger than the machine, which has 9663676416 for this process
}
