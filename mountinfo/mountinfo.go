package mountinfo

import (
	"os"
	"strconv"
	"strings"
)

// A Mount is one line of the table.
type Mount struct {
	Device  string // number of the file system's device, as major:minor
	Root    string // mounted folder of the file system
	Point   string // mount point, below the root of this process
	Type    string // of the file system
	Source  string // source of the file system; may be empty
	Options string // options of the file system as a whole, as the kernel writes them, separated by commas
	Line    string // the whole line as the kernel writes it
}

// Read returns the mounts that this process sees, in the order in which they were mounted.
func Read() ([]Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(string(text)), nil
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
	return Mount{
		Device: m[2], Root: unescape(m[3]), Point: unescape(m[4]),
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
