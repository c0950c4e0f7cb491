package tree

import (
	"fmt"
	"unicode/utf8"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Check returns an error that wraps ErrInvalid unless all readers can use the Directory message b:
// Parse accepts it, and its names and targets are UTF-8, as REv2 requires.
func Check(fn digest.Function, b []byte) error {
	dir, err := Parse(fn, b)
	if err != nil {
		return err
	}
	for i := range dir.Len() {
		if e := dir.At(i); !utf8.ValidString(e.Name) || !utf8.ValidString(e.Target) {
			return fmt.Errorf("%w: %s %.100q: it, or its target, is not UTF-8", ErrInvalid, e.Kind, e.Name)
		}
	}
	return nil
}

// CheckTree returns an error that wraps ErrInvalid unless all readers can use the Tree message b:
// its root and its children pass Check, and it has each directory that one of them names. It
// returns the encoded root, which may be part of b.
func CheckTree(fn digest.Function, b []byte) (root []byte, err error) {
	const rootField, children = 1, 2
	there := map[digest.Digest]struct{}{fn.Empty(): {}}
	var messages [][]byte
	c := cursor{rest: b}
	for c.next() {
		switch {
		case c.isBytes(children):
			there[digest.Of(fn, c.bytes)] = struct{}{}
			messages = append(messages, c.bytes)
		case c.isBytes(rootField) && root == nil:
			root = c.bytes
		case c.isBytes(rootField): // parts of a message follow each other when they are merged
			root = append(root[:len(root):len(root)], c.bytes...)
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: in a tree: %w", ErrInvalid, c.err)
	}
	for _, encoded := range append(messages, root) {
		if err := Check(fn, encoded); err != nil {
			return nil, err
		}
		named, err := ReferencesOf(fn, encoded)
		if err != nil {
			return nil, err
		}
		for _, d := range named.Directories {
			if _, ok := there[d]; !ok {
				return nil, fmt.Errorf("%w: directory %s is named in a tree and not there", ErrInvalid, d)
			}
		}
	}
	return root, nil
}
