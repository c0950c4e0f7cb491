package farm

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/worker/outputs"
)

const (
	// filesOfScheduler is how many files and connections a scheduler needs open, with storage and a
	// few callers. filesOfWorker is what a worker needs, and filesOfPosition what each action takes
	// that it prepares, runs or stores.
	filesOfScheduler, filesOfWorker, filesOfPosition = 256, 128, 16
)

// The choices of cgroup.
const (
	cgroupAuto    = "auto"
	cgroupRequire = "require"
	cgroupOff     = "off"
)

// A slotPlan is how the machine is divided.
type slotPlan struct {
	parent *cgroup.Parent  // nil: no cgroups
	limits []cgroup.Limits // of each slot, if there is a parent
}

// divide measures the machine and returns the limits of each slot; none without cgroups.
func (w *Worker) divide() ([]cgroup.Limits, error) {
	switch w.Cgroup {
	case "", cgroupAuto, cgroupRequire:
	case cgroupOff:
		if w.SlotCPUs != 0 || w.SlotMemory != "" {
			return nil, settings.Wrong("tuning.slot_cpus and tuning.slot_memory need cgroups: tuning.cgroup is off")
		}
		return nil, nil
	default:
		return nil, settings.Wrong("tuning.cgroup: %q is none of require, auto and off", w.Cgroup)
	}
	memory, err := settings.ParseSize(w.SlotMemory)
	if err != nil {
		return nil, settings.Wrong("tuning.slot_memory: %w", err)
	}
	if !(w.SlotCPUs >= 0 && w.SlotCPUs <= 1<<20) {
		return nil, settings.Wrong("tuning.slot_cpus: %v CPUs", w.SlotCPUs)
	}
	// Before this process may have to move to another cgroup.
	capacity, err := cgroup.Measure()
	if err != nil {
		return nil, err
	}
	share := cgroup.Share{Slots: w.Slots, Quota: int(math.Round(w.SlotCPUs * 1000)), Memory: memory}
	limits, err := capacity.Divide(share)
	if err != nil {
		return nil, settings.Wrong("--slots, tuning.slot_cpus, tuning.slot_memory: %w", err)
	}
	if all := memory * int64(w.Slots); all > capacity.Memory {
		w.Logger.Warn("the slots together may use more memory than the machine has: it can run out before a slot does",
			zap.Int64("slots_bytes", all), zap.Int64("machine_bytes", capacity.Memory))
	}
	return limits, nil
}

// cgroupAdvice says how a worker gets cgroups and their controllers.
const cgroupAdvice = "run as root, in a systemd service with Delegate=yes, in a container with --privileged (docs/EXECUTION.md#setting-up-cgroups)"

// openSlots makes the cgroup of slots with limits; no limits: no cgroups are wanted. A missing
// controller is an error or a warning, as cgroup says.
func (w *Worker) openSlots(name string, limits []cgroup.Limits) (slotPlan, error) {
	if len(limits) == 0 {
		return slotPlan{}, nil
	}
	parent, err := w.openParent(name)
	switch {
	case errors.Is(err, cgroup.ErrUnavailable) && w.Cgroup != cgroupRequire:
		w.Logger.Warn("no cgroups: commands have no limits, and their processes are found by their parents only",
			zap.NamedError("missing", err),
			zap.String("costs", "a command can take the memory and the CPUs of others, results have no figures of them, "+
				"and a process that leaves its parent may live on"),
			zap.String("remedy", cgroupAdvice))
		return slotPlan{}, nil
	case errors.Is(err, cgroup.ErrInUse), errors.Is(err, cgroup.ErrBusy):
		return slotPlan{}, fmt.Errorf("data folder %s: %w", w.Data, err)
	case err != nil:
		return slotPlan{}, err
	}
	lacks := parent.Missing()
	if len(lacks) > 0 && w.Cgroup == cgroupRequire {
		return slotPlan{}, errors.Join(fmt.Errorf("tuning.cgroup: require: %w", errors.Join(lacks...)), parent.Close())
	}
	for _, lack := range lacks {
		w.Logger.Warn("slots lack a limit (tuning.cgroup: require makes this an error)", zap.NamedError("missing", lack),
			zap.String("costs", "a command can take what others need of it"), zap.String("remedy", cgroupAdvice))
	}
	first := limits[0]
	w.Logger.Info("slots are limited", zap.Int("slots", len(limits)), zap.Int("cpus", len(first.CPUs)),
		zap.Float64("cpu_quota", float64(first.Quota)/1000), zap.Int64("memory_bytes", first.Memory),
		zap.Int("processes", first.Pids), zap.Int("cgroup_version", parent.Version()))
	return slotPlan{parent, limits}, nil
}

// maxHeld is how many earlier workers with the same data may have left processes that the kernel
// holds.
const maxHeld = 4

// openParent opens the group called name, or another one if the kernel holds processes in that.
func (w *Worker) openParent(name string) (parent *cgroup.Parent, err error) {
	for i := range maxHeld {
		o := cgroup.Options{Name: name, Logger: w.Logger}
		if i > 0 {
			o.Name = fmt.Sprintf("%s-%d", name, i)
		}
		if parent, err = cgroup.Open(o); !errors.Is(err, cgroup.ErrBusy) {
			return parent, err
		}
		w.Logger.Warn("the kernel holds processes of an earlier worker in its cgroup; using another one", zap.NamedError("held", err))
	}
	return nil, err
}

// slot makes the group of slot i; nil without cgroups. The round is 0, or how many groups of
// the slot could not be removed before.
func (p *slotPlan) slot(i, round int) (*cgroup.Slot, error) {
	if p.parent == nil {
		return nil, nil
	}
	name := strconv.Itoa(i)
	if round > 0 {
		name = fmt.Sprintf("%d-%d", i, round)
	}
	s, err := p.parent.Slot(name)
	if err != nil {
		return nil, err
	}
	if err := s.Limit(p.limits[i]); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// writes are the limits of an action's files in memory and of its outputs.
func (w *Worker) writes() (upperMemory int64, outputs outputs.Policy, err error) {
	if upperMemory, err = settings.ParseSize(w.UpperMemory); err != nil {
		return 0, outputs, settings.Wrong("tuning.upper_memory: %w", err)
	}
	outputs.Files = w.MaxOutputFiles
	if outputs.Bytes, err = settings.ParseSize(w.MaxOutputBytes); err != nil {
		return 0, outputs, settings.Wrong("tuning.max_output_bytes: %w", err)
	}
	if outputs.Scratch, err = settings.ParseSize(w.MaxScratch); err != nil {
		return 0, outputs, settings.Wrong("tuning.max_scratch: %w", err)
	}
	return upperMemory, outputs, nil
}
