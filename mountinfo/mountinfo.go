package mountinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Mount is one line of the table.
type Mount struct {
	ID      int    // number of the mount
	Parent  int    // number of the mount that it is on
	Device  string // number of the file system's device, as major:minor
	Root    string // mounted folder of the file system
	Point   string // mount point, below the root of this process
	Type    string // of the file system
	Source  string // source of the file system; may be empty
	Options string // options of the file system as a whole, as the kernel writes them, separated by commas
	Line    string // the whole line as the kernel writes it
}

// Read returns the mounts that this process reaches by a path.
func Read() ([]Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return reachable(Parse(string(text))), nil
}

// reachable leaves out mounts that no path leads to, although the table names one: another mount
// lies over a folder above. Where several are mounted on one another all remain.
func reachable(all []Mount) []Mount {
	type place struct {
		on   int
		path string
	}
	places := make(map[place]bool, len(all)) // where something is mounted
	byID := make(map[int]Mount, len(all))
	for _, m := range all {
		places[place{m.Parent, m.Point}] = true
		byID[m.ID] = m
	}
	isCovered := func(m Mount) bool {
		for path, above := m.Point, filepath.Dir(m.Point); above != path; path, above = above, filepath.Dir(above) {
			if places[place{m.Parent, above}] {
				return true
			}
		}
		return false
	}
	hidden := make(map[int]bool, len(all)) // by number, once it is known
	var isHidden func(m Mount) bool
	isHidden = func(m Mount) bool {
		if known, ok := hidden[m.ID]; ok {
			return known
		}
		hidden[m.ID] = false // for a table with a circle
		parent, ok := byID[m.Parent]
		hidden[m.ID] = isCovered(m) || ok && isHidden(parent)
		return hidden[m.ID]
	}
	return slices.DeleteFunc(all, isHidden)
}

// Parse returns the mounts of a table. It skips invalid lines: a file system writes its options
// freely, and a line break in them must not hide the mounts of others.
func Parse(table string) []Mount {
	var all []Mount
	for line := range strings.Lines(table) {
		if m, ok := parseLine(strings.TrimSuffix(line, "\n")); ok {
			all = append(all, m)
		}
	}
	return all
}

// parseLine reads id, parent, device, root, point, options of the mount and any number of optional
// fields, then, behind a "-", type, source and options of the file system.
func parseLine(line string) (Mount, bool) {
	mount, fileSystem, _ := strings.Cut(line, " - ")
	m, f := strings.Split(mount, " "), strings.SplitN(fileSystem, " ", 3)
	if len(m) < 6 || len(f) < 3 {
		return Mount{}, false
	}
	id, err := strconv.Atoi(m[0])
	if err != nil {
		return Mount{}, false
	}
	parent, err := strconv.Atoi(m[1])
	if err != nil {
		return Mount{}, false
	}
	return Mount{
		ID: id, Parent: parent, Device: m[2], Root: unescape(m[3]), Point: unescape(m[4]),
		Type: unescape(f[0]), Source: unescape(f[1]), Options: f[2],
		Line: line,
	}, true
}

// unescape turns \040 and the like back into the character.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
