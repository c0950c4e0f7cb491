package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// The types of file systems that show cgroups. The options of a v1 hierarchy have its controllers.
const (
	v1Type = "cgroup"
	v2Type = "cgroup2"
)

// hierarchy is a mounted cgroup hierarchy and our own slot in it.
type hierarchy struct {
	version int    // 1 (the freezer) or 2
	own     string // absolute path of the group this process is in
}

// surroundings are the hierarchies that are mounted, and the groups this process
// is in.
type surroundings struct {
	mounts  []mountinfo.Mount // of type v1Type or v2Type
	v1      map[string]string // group by controller
	unified string            // group in the v2 hierarchy; empty: there is none
}

func lookAround() (surroundings, error) {
	mounts, err := mountinfo.Read()
	if err != nil {
		return surroundings{}, err
	}
	v1, v2, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return surroundings{}, fmt.Errorf("read /proc/self/cgroup: %w", err)
	}
	return surroundings{mounts: onlyCgroups(mounts), v1: v1, unified: v2}, nil
}

// onlyCgroups keeps the mounts that show a cgroup hierarchy.
func onlyCgroups(mounts []mountinfo.Mount) []mountinfo.Mount {
	return slices.DeleteFunc(mounts, func(m mountinfo.Mount) bool { return m.Type != v1Type && m.Type != v2Type })
}

// hierarchies lists the usable kinds in the order of preference, restricted to one
// version unless it is 0.
func (s surroundings) hierarchies(version int) []hierarchy {
	var found []hierarchy
	if own, ok := s.inUnified(); ok && version != 1 {
		found = append(found, hierarchy{2, own})
	}
	if own, ok := s.controller("freezer"); ok && version != 2 {
		found = append(found, hierarchy{1, own})
	}
	return found
}

// inUnified returns the folder of the group that this process is in, in the v2 hierarchy.
func (s surroundings) inUnified() (own string, ok bool) {
	return s.find(s.unified, func(m mountinfo.Mount) bool { return m.Type == v2Type })
}

// controller returns the folder of the group that this process is in, in the v1
// hierarchy that has the controller.
func (s surroundings) controller(name string) (own string, ok bool) {
	return s.find(s.v1[name], func(m mountinfo.Mount) bool { return m.Type == v1Type && hasOption(m.Options, name) })
}

func (s surroundings) find(group string, match func(mountinfo.Mount) bool) (own string, ok bool) {
	if group == "" {
		return "", false
	}
	for _, m := range s.mounts {
		if !match(m) {
			continue
		}
		if dir, ok := dirOf(m, group); ok {
			return dir, true
		}
	}
	return "", false
}

// A Group is a group of a hierarchy that is mounted at Point.
type Group struct{ Point, Dir string }

// Groups returns the groups of the commands of slot; if slot is nil, the groups of this process.
func Groups(slot *Handle) ([]Group, error) {
	around, err := lookAround()
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	dirs := map[string]string{} // by mount point
	if slot != nil {
		for _, dir := range append([]string{slot.Dir}, slot.Threads...) {
			dirs[around.pointOf(dir)] = dir
		}
	}
	var all []Group
	for _, m := range around.mounts {
		dir := dirs[m.Point]
		if slot == nil {
			dir, _ = around.ownIn(m)
		}
		if dir != "" {
			all = append(all, Group{m.Point, dir})
		}
	}
	return all, nil
}

// pointOf is where the hierarchy is mounted that has the folder.
func (s surroundings) pointOf(dir string) (point string) {
	for _, m := range s.mounts {
		if strings.HasPrefix(dir, m.Point+"/") && len(m.Point) > len(point) {
			point = m.Point
		}
	}
	return point
}

// ownIn returns the folder of the group of this process in a mounted hierarchy.
func (s surroundings) ownIn(m mountinfo.Mount) (dir string, ok bool) {
	if m.Type == v2Type {
		return dirOf(m, s.unified)
	}
	for controller, group := range s.v1 {
		if hasOption(m.Options, controller) {
			return dirOf(m, group)
		}
	}
	return "", false
}

// dirOf maps the path of a group, as in /proc/self/cgroup, to a directory. In a container the mount
// may show a subtree only. Paths outside our cgroup namespace begin with "/..".
func dirOf(m mountinfo.Mount, group string) (string, bool) {
	if strings.HasPrefix(group, "/..") || !paths.Below(group, m.Root) {
		return "", false
	}
	return filepath.Join(m.Point, strings.TrimPrefix(group, m.Root)), true
}

func hasOption(opts, want string) bool {
	for o := range strings.SplitSeq(opts, ",") {
		if o == want {
			return true
		}
	}
	return false
}
