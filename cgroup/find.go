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

// hierarchy is a mounted cgroup hierarchy and our own place in it.
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

// findHierarchies lists the usable kinds in the order of preference, restricted
// to one version unless it is 0.
func findHierarchies(version int) ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mounts, err := parseMounts(f)
	if err != nil {
		return nil, fmt.Errorf("read /proc/self/mountinfo: %w", err)
	}
	v1, v2, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read /proc/self/cgroup: %w", err)
	}
	return pickHierarchies(mounts, v1["freezer"], v2, version), nil
}

func pickHierarchies(mounts []mount, freezer, unified string, version int) []hierarchy {
	var found []hierarchy
	add := func(v int, group string, match func(mount) bool) {
		if group == "" || (version != 0 && version != v) {
			return
		}
		for _, m := range mounts {
			if !match(m) {
				continue
			}
			if dir, ok := m.dirOf(group); ok {
				found = append(found, hierarchy{version: v, own: dir})
				return
			}
		}
	}
	add(2, unified, func(m mount) bool { return m.v2 })
	add(1, freezer, func(m mount) bool { return !m.v2 && hasOption(m.opts, "freezer") })
	return found
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
