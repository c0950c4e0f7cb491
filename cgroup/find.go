package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
)

// hierarchy is a mounted cgroup hierarchy and our own slot in it.
type hierarchy struct {
	version int    // 1 (the freezer) or 2
	own     string // absolute path of the group this process is in
}

// mount is one line of mountinfo that shows a cgroup hierarchy.
type mount struct {
	root  string // the group that is visible at point
	point string
	v2    bool
	opts  string // super options: the v1 controllers
}

// surroundings are the hierarchies that are mounted, and the groups this process
// is in.
type surroundings struct {
	mounts  []mount
	v1      map[string]string // group by controller
	unified string            // group in the v2 hierarchy; empty: there is none
}

func lookAround() (surroundings, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return surroundings{}, err
	}
	defer f.Close()
	mounts, err := parseMounts(f)
	if err != nil {
		return surroundings{}, fmt.Errorf("read /proc/self/mountinfo: %w", err)
	}
	v1, v2, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return surroundings{}, fmt.Errorf("read /proc/self/cgroup: %w", err)
	}
	return surroundings{mounts: mounts, v1: v1, unified: v2}, nil
}

// hierarchies lists the usable kinds in the order of preference, restricted to one
// version unless it is 0.
func (s surroundings) hierarchies(version int) []hierarchy {
	var found []hierarchy
	if own, ok := s.find(s.unified, func(m mount) bool { return m.v2 }); ok && version != 1 {
		found = append(found, hierarchy{2, own})
	}
	if own, ok := s.controller("freezer"); ok && version != 2 {
		found = append(found, hierarchy{1, own})
	}
	return found
}

// controller returns the folder of the group that this process is in, in the v1
// hierarchy that has the controller.
func (s surroundings) controller(name string) (own string, ok bool) {
	return s.find(s.v1[name], func(m mount) bool { return !m.v2 && hasOption(m.opts, name) })
}

func (s surroundings) find(group string, match func(mount) bool) (own string, ok bool) {
	if group == "" {
		return "", false
	}
	for _, m := range s.mounts {
		if !match(m) {
			continue
		}
		if dir, ok := m.dirOf(group); ok {
			return dir, true
		}
	}
	return "", false
}

// A Group is one of a hierarchy that is mounted at Point.
type Group struct{ Point, Dir string }

// Groups are those that the commands of slot are in; for nil those that this process is in.
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
		dir := dirs[m.point]
		if slot == nil {
			dir, _ = around.ownIn(m)
		}
		if dir != "" {
			all = append(all, Group{m.point, dir})
		}
	}
	return all, nil
}

// pointOf is where the hierarchy is mounted that has the folder.
func (s surroundings) pointOf(dir string) (point string) {
	for _, m := range s.mounts {
		if strings.HasPrefix(dir, m.point+"/") && len(m.point) > len(point) {
			point = m.point
		}
	}
	return point
}

// ownIn returns the folder of the group of this process in a mounted hierarchy.
func (s surroundings) ownIn(m mount) (dir string, ok bool) {
	if m.v2 {
		return m.dirOf(s.unified)
	}
	for controller, group := range s.v1 {
		if hasOption(m.opts, controller) {
			return m.dirOf(group)
		}
	}
	return "", false
}

// dirOf maps the path of a group, as /proc/self/cgroup shows it, to a directory.
// In a container the mount may show a subtree only.
func (m mount) dirOf(group string) (string, bool) {
	if strings.HasPrefix(group, "/..") {
		return "", false // outside of our cgroup namespace
	}
	switch {
	case m.root == "/":
		return filepath.Join(m.point, group), true
	case group == m.root || strings.HasPrefix(group, m.root+"/"):
		return filepath.Join(m.point, strings.TrimPrefix(group, m.root)), true
	}
	return "", false
}

func hasOption(opts, want string) bool {
	for o := range strings.SplitSeq(opts, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// parseMounts keeps the cgroup lines of mountinfo (proc(5)): fields 4 and 5 are
// root and mount point; after a "-" come type, source and super options.
func parseMounts(r io.Reader) ([]mount, error) {
	var ms []mount
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		if !ok {
			return nil, errors.New("malformed line: no separator")
		}
		head, tail := strings.Fields(before), strings.Fields(after)
		if len(head) < 5 || len(tail) < 1 {
			return nil, errors.New("malformed line: too few fields")
		}
		if tail[0] != "cgroup" && tail[0] != "cgroup2" {
			continue
		}
		m := mount{root: unescape(head[3]), point: unescape(head[4]), v2: tail[0] == "cgroup2"}
		if len(tail) > 2 {
			m.opts = tail[2]
		}
		ms = append(ms, m)
	}
	return ms, sc.Err()
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
