package tree

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// MaxName is the length in bytes of the longest file name that Linux takes (NAME_MAX).
	MaxName = 255
	// maxTargetBytes is the longest symlink that Linux takes: PATH_MAX with its NUL.
	maxTargetBytes = 4095
)

// A parser turns an encoded Directory into an index. Its steps are count, check, merge.
type parser struct {
	fn      digest.Function
	encoded []byte
	counts  [Symlink + 1]int      // by kind
	lists   [Symlink + 1][]uint32 // index words, by kind
	late    bool                  // a node has a name that is not its first field
}

// count counts the entries. It looks no deeper than at the fields of the Directory itself.
func (p *parser) count() error {
	c := cursor{rest: p.encoded}
	for c.next() {
		p.counts[c.entryKind()]++
	}
	return c.err
}

// check fills the lists, and checks each entry and the order of each list.
func (p *parser) check() error {
	for kind := Dir; kind <= Symlink; kind++ {
		p.lists[kind] = make([]uint32, 0, p.counts[kind])
	}
	var last [Symlink + 1][]byte
	c := cursor{rest: p.encoded}
	for at := 0; c.next(); at = len(p.encoded) - len(c.rest) {
		kind := c.entryKind()
		if kind == 0 {
			if c.isBytes(directoryProperties) {
				if err := new(node).decodeProperties(c.bytes); err != nil {
					return err
				}
			}
			continue
		}
		var n node
		if err := n.decode(kind, c.bytes); err != nil {
			return fmt.Errorf("%s %.100q: %w", kind, n.name, err)
		}
		if err := p.checkNode(kind, &n, last[kind]); err != nil {
			return err
		}
		last[kind] = n.name
		p.late = p.late || n.late
		p.lists[kind] = append(p.lists[kind], uint32(kind)<<kindShift|uint32(p.lengthAt(at)))
	}
	return c.err
}

// lengthAt returns where the length of a field's value begins: after the tag at
// offset at, which ends with the first byte below 0x80.
func (p *parser) lengthAt(at int) int {
	for p.encoded[at] >= 0x80 {
		at++
	}
	return at + 1
}

// checkNode checks one entry; last is the name before it in its list, or nil.
func (p *parser) checkNode(kind Kind, n *node, last []byte) error {
	if fault := nameFault(text(n.name)); fault != "" {
		return fmt.Errorf("%s %.100q: name %s", kind, n.name, fault)
	}
	switch order := bytes.Compare(last, n.name); {
	case order == 0:
		return fmt.Errorf("%s %.100q occurs more than once", kind, n.name)
	case order > 0:
		return fmt.Errorf("%s %.100q comes after %.100q: names are not sorted", kind, n.name, last)
	}
	if kind != Symlink {
		if _, err := n.digest(p.fn); err != nil {
			return fmt.Errorf("%s %.100q: %w", kind, n.name, err)
		}
		return nil
	}
	switch {
	case len(n.target) == 0:
		return fmt.Errorf("symlink %.100q has no target", n.name)
	case len(n.target) > maxTargetBytes:
		return fmt.Errorf("symlink %.100q: its target has %d bytes, at most %d are possible",
			n.name, len(n.target), maxTargetBytes)
	case bytes.IndexByte(n.target, 0) >= 0:
		return fmt.Errorf("symlink %.100q has a NUL in its target %.100q", n.name, n.target)
	}
	return nil
}

// nameFault returns why name is not a valid path component; "" if it is.
func nameFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "is reserved"
	case len(name) > MaxName:
		return fmt.Sprintf("has %d bytes, at most %d are possible", len(name), MaxName)
	case strings.IndexByte(name, '/') >= 0:
		return "contains a slash"
	case strings.IndexByte(name, 0) >= 0:
		return "contains a NUL"
	}
	return ""
}

// CheckName returns an error if name is not a valid name of an entry.
func CheckName(name string) error {
	if fault := nameFault(name); fault != "" {
		return fmt.Errorf("name %.100q %s", name, fault)
	}
	return nil
}

// merge makes one sorted list of the three. A name that two of them have is an error.
func (p *parser) merge() ([]uint32, error) {
	total := 0
	var names [Symlink + 1][]byte // the smallest remaining one of each list; nil at its end
	for kind := Dir; kind <= Symlink; kind++ {
		total += len(p.lists[kind])
		names[kind] = p.first(kind)
	}
	index := make([]uint32, 0, total)
	for len(index) < total {
		least := Kind(0)
		for kind := Dir; kind <= Symlink; kind++ {
			if names[kind] == nil {
				continue
			}
			if least == 0 {
				least = kind
				continue
			}
			switch order := bytes.Compare(names[kind], names[least]); {
			case order == 0:
				return nil, fmt.Errorf("%.100q occurs more than once: as a %s and as a %s", names[kind], least, kind)
			case order < 0:
				least = kind
			}
		}
		index = append(index, p.lists[least][0])
		p.lists[least] = p.lists[least][1:]
		names[least] = p.first(least)
	}
	return index, nil
}

// first returns the name of the first entry of a list, nil if it is empty.
func (p *parser) first(kind Kind) []byte {
	if len(p.lists[kind]) == 0 {
		return nil
	}
	return nameOf(message(p.encoded, p.lists[kind][0]), p.late)
}
