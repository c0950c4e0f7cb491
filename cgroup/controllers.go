package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controllers are the controllers that limits need.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// A control is one controller that works for the groups of a Parent.
type control struct {
	version int
	dir     string // of the Parent's group in the controller's hierarchy
}

// slotDir is where the Parent's group parent has the slot called name.
func slotDir(parent, name string) string { return filepath.Join(parent, slotPrefix+name) }

// openControls finds a hierarchy for each controller and makes the Parent's groups there. Unusable
// controllers go to p.missing.
func (p *Parent) openControls(around surroundings, own string) {
	p.controls = map[string]control{}
	name := filepath.Base(p.dir)
	for _, c := range controllers {
		dir, isV1 := around.controller(c)
		var err error
		if isV1 {
			dir = filepath.Join(dir, name)
			err = openV1Control(dir)
			p.controls[c] = control{1, dir}
		} else {
			err = p.delegate(own, c)
			p.controls[c] = control{2, p.dir}
		}
		if err != nil {
			delete(p.controls, c)
			p.missing = append(p.missing, fmt.Errorf("%s: %w", c, err))
		}
	}
	// Controllers that are only for measurements are not reported as missing.
	if err := p.delegate(own, "io"); err == nil {
		p.controls["io"] = control{2, p.dir}
	}
	if memory, ok := p.controls["memory"]; ok && memory.missesSwap() {
		p.missing = append(p.missing, errors.New("memory: this machine has swap, and the kernel does not count it per cgroup "+
			"(boot it with swapaccount=1): memory limits apply only to memory that is not swapped"))
	}
	// A hierarchy other than v2 counts CPU times in a separate controller.
	if dir, ok := around.controller("cpuacct"); ok && p.version == 1 {
		dir = filepath.Join(dir, name)
		if err := openV1Control(dir); err == nil {
			p.controls["cpuacct"] = control{1, dir}
		}
	}
	p.openOthers(around, name)
}

// openOthers makes the Parent's groups in the remaining v1 hierarchies. They limit nothing:
// commands get a separate group there and see no others. An unavailable hierarchy is skipped, as in
// a container that shows it read-only.
func (p *Parent) openOthers(around surroundings, name string) {
	has := []string{p.dir}
	for _, c := range p.controls {
		has = append(has, c.dir)
	}
	for _, hierarchy := range slices.Sorted(maps.Keys(around.v1)) {
		dir, ok := around.controller(hierarchy)
		if dir = filepath.Join(dir, name); !ok || slices.Contains(has, dir) {
			continue
		}
		if err := openV1Control(dir); err == nil {
			has, p.others = append(has, dir), append(p.others, dir)
		}
	}
}

// missesSwap reports that limits of memory do not cover existing swap.
func (c control) missesSwap() bool {
	file := "memory.swap.max"
	if c.version == 1 {
		file = "memory.memsw.limit_in_bytes"
	}
	_, err := os.Stat(filepath.Join(c.dir, file))
	swaps, _ := os.ReadFile("/proc/swaps") // a header, and a line for each
	return errors.Is(err, fs.ErrNotExist) && strings.Count(string(swaps), "\n") > 1
}

// openV1Control makes the group dir, without leftovers of a dead process. Their processes were
// already killed through the main hierarchy; their last threads may still be exiting.
func openV1Control(dir string) error {
	if err := removeTree(dir, stalePatience); err != nil {
		return err
	}
	return makeV1Group(dir)
}

// makeV1Group makes a group. A cpuset group takes no process until its CPUs and memory nodes are
// set, here to its parent's.
func makeV1Group(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // co-mounted controllers share it
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another controller
		}
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, file), strings.TrimSpace(string(text))); err != nil {
			return err
		}
	}
	return nil
}

// delegate gives the slots of p a v2 controller: own must have it, and hand it down.
func (p *Parent) delegate(own, controller string) error {
	if p.version != 2 {
		return errors.New("no v1 hierarchy has the controller")
	}
	has, err := words(filepath.Join(own, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !slices.Contains(has, controller) {
		return fmt.Errorf("group %s does not have the controller (it has %q): the owner of the group must delegate it, "+
			"under systemd by Delegate=yes, in a container by a private and writable cgroup", own, strings.Join(has, " "))
	}
	handsDown, err := words(filepath.Join(own, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if !slices.Contains(handsDown, controller) {
		if err := p.handDown(own, controller); err != nil {
			return err
		}
		p.enabled = append(p.enabled, controller)
	}
	return writeFile(filepath.Join(p.dir, "cgroup.subtree_control"), "+"+controller)
}

// handDown enables a controller for the groups below own, which must have no processes, unless it
// is the root of the hierarchy. If this process is the only one there, it moves. With a process in
// it, the kernel would refuse memory and io, and take cpu, cpuset and pids for a request to manage
// threads, which makes all groups below unusable (cgroups(7), "Creating a threaded subtree").
func (p *Parent) handDown(own, controller string) error {
	_, err := os.Stat(filepath.Join(own, "cgroup.type"))
	isRoot := errors.Is(err, fs.ErrNotExist)
	if !isRoot && p.home == "" {
		if err := p.moveOut(own); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(own, "cgroup.subtree_control"), "+"+controller)
}

func (p *Parent) moveOut(own string) error {
	pids, err := pidsIn(own)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
	if len(others) > 0 {
		return fmt.Errorf("group %s holds other processes than this one (%v), and so cannot hand controllers down: "+
			"start the worker alone in a group of its own", own, others)
	}
	aside := filepath.Join(p.dir, asideName)
	if err := os.Mkdir(aside, 0o755); err != nil {
		return err
	}
	if err := enter(aside, os.Getpid()); err != nil {
		return fmt.Errorf("move out of %s: %w", own, err)
	}
	p.home = own
	return nil
}

// takeBack undoes delegate, as far as no other group needs it.
func (p *Parent) takeBack() error {
	if p.home == "" {
		return nil
	}
	slots, err := subgroups(p.dir) // the lock of a slot's owner protects it
	if err != nil {
		return fmt.Errorf("take back controllers: %w", err)
	}
	for _, c := range p.enabled {
		for _, dir := range append(slots, p.dir, p.home) {
			if err := writeFile(filepath.Join(dir, "cgroup.subtree_control"), "-"+c); err != nil {
				return fmt.Errorf("take back controller %s: %w", c, err)
			}
		}
	}
	if err := enter(p.home, os.Getpid()); err != nil {
		return fmt.Errorf("move back to group %s: %w", p.home, err)
	}
	p.home = ""
	return nil
}

// words reads a file of words.
func words(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	return strings.Fields(string(text)), err
}
