package vfs

import "fmt"

// A Method is a way to show input files to the action. It is the value of a flag: see Set.
type Method string

// The methods. The zero Method is Auto.
const (
	// Auto is FUSE if the machine supports it, or else HardLink, with a warning in the log.
	Auto Method = "auto"
	// FUSE fetches a file when the action opens it, and needs an overlayfs above it.
	FUSE Method = "fuse"
	// HardLink fetches every file before the action starts, and makes a hard link to it, below an
	// overlayfs if the machine supports one.
	HardLink Method = "hardlink"
)

// String returns the name of m.
func (m Method) String() string {
	if m == "" {
		return string(Auto)
	}
	return string(m)
}

// Set sets m to the method with that name.
func (m *Method) Set(name string) error {
	switch Method(name) {
	case Auto, FUSE, HardLink:
		*m = Method(name)
		return nil
	}
	return fmt.Errorf("method %q is none of %s, %s and %s", name, Auto, FUSE, HardLink)
}

// Type is the type of the flag.
func (m *Method) Type() string { return "method" }
