package cas

import (
	"fmt"
	"math"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxNameBytes is the longest file name that Linux takes (NAME_MAX).
const maxNameBytes = 255

// ValidateDirectory reports whether m can be shown as a directory: every name is
// one path component of 1 to 255 bytes other than "." and "..", names are sorted
// by bytes in each of the three lists and occur once in all of them together
// (REv2, "Directory"), every digest is well-formed, and every symlink has a
// target. Its errors wrap ErrInvalidDirectory and quote the offending name. It
// takes time linear in the number of entries and does not allocate.
func ValidateDirectory(fn digest.Function, m *repb.Directory) error {
	if err := validateNames("file", m.GetFiles()); err != nil {
		return err
	}
	if err := validateNames("directory", m.GetDirectories()); err != nil {
		return err
	}
	if err := validateNames("symlink", m.GetSymlinks()); err != nil {
		return err
	}
	if name, found := sharedName(m); found {
		return fmt.Errorf("%w: %.100q occurs more than once", ErrInvalidDirectory, name)
	}
	for _, f := range m.GetFiles() {
		if _, err := digest.FromProto(fn, f.GetDigest()); err != nil {
			return fmt.Errorf("%w: file %.100q: %w", ErrInvalidDirectory, f.GetName(), err)
		}
	}
	for _, d := range m.GetDirectories() {
		if _, err := digest.FromProto(fn, d.GetDigest()); err != nil {
			return fmt.Errorf("%w: directory %.100q: %w", ErrInvalidDirectory, d.GetName(), err)
		}
	}
	for _, l := range m.GetSymlinks() {
		if l.GetTarget() == "" {
			return fmt.Errorf("%w: symlink %.100q has no target", ErrInvalidDirectory, l.GetName())
		}
		if strings.IndexByte(l.GetTarget(), 0) >= 0 {
			return fmt.Errorf("%w: symlink %.100q has a NUL in its target %.100q",
				ErrInvalidDirectory, l.GetName(), l.GetTarget())
		}
	}
	return nil
}

// validateNames checks each name of one list, and that the list is sorted and
// without duplicates.
func validateNames[N interface{ GetName() string }](kind string, nodes []N) error {
	for i, n := range nodes {
		name := n.GetName()
		if fault := nameFault(name); fault != "" {
			return fmt.Errorf("%w: %s %.100q: name %s", ErrInvalidDirectory, kind, name, fault)
		}
		if i == 0 {
			continue
		}
		switch previous := nodes[i-1].GetName(); {
		case name == previous:
			return fmt.Errorf("%w: %s %.100q occurs more than once", ErrInvalidDirectory, kind, name)
		case name < previous:
			return fmt.Errorf("%w: %s %.100q comes after %.100q: names are not sorted",
				ErrInvalidDirectory, kind, name, previous)
		}
	}
	return nil
}

// nameFault says what forbids name as a path component; "" means nothing.
func nameFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "is reserved"
	case len(name) > maxNameBytes:
		return fmt.Sprintf("has %d bytes, at most %d are possible", len(name), maxNameBytes)
	case strings.IndexByte(name, '/') >= 0:
		return "contains a slash"
	case strings.IndexByte(name, 0) >= 0:
		return "contains a NUL"
	}
	return ""
}

// sharedName finds a name that two of m's lists, all sorted, have in common, by
// merging them.
func sharedName(m *repb.Directory) (string, bool) {
	files, dirs, links := m.GetFiles(), m.GetDirectories(), m.GetSymlinks()
	for len(files)+len(dirs)+len(links) > 0 {
		least, count := "", math.MaxInt
		take := func(name string) {
			switch {
			case count == math.MaxInt || name < least:
				least, count = name, 1
			case name == least:
				count++
			}
		}
		if len(files) > 0 {
			take(files[0].GetName())
		}
		if len(dirs) > 0 {
			take(dirs[0].GetName())
		}
		if len(links) > 0 {
			take(links[0].GetName())
		}
		if count > 1 {
			return least, true
		}
		if len(files) > 0 && files[0].GetName() == least {
			files = files[1:]
		}
		if len(dirs) > 0 && dirs[0].GetName() == least {
			dirs = dirs[1:]
		}
		if len(links) > 0 && links[0].GetName() == least {
			links = links[1:]
		}
	}
	return "", false
}
