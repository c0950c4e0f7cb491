package tree

import (
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// References are the digests that a Directory message names, with repetitions, in its order.
type References struct {
	Files, Directories []digest.Digest
}

// ReferencesOf returns the digests in the Directory message b. Unlike Parse it checks only that b
// can be decoded and that the digests are well-formed; its errors wrap ErrInvalid. It does not keep
// b.
func ReferencesOf(fn digest.Function, b []byte) (References, error) {
	var r References
	c := cursor{rest: b}
	for c.next() {
		kind := c.entryKind()
		if kind != Dir && kind != File {
			continue
		}
		var n node
		err := n.decode(kind, c.bytes)
		var d digest.Digest
		if err == nil {
			d, err = n.digest(fn)
		}
		if err != nil {
			return References{}, fmt.Errorf("%w: %s %.100q: %w", ErrInvalid, kind, n.name, err)
		}
		if kind == Dir {
			r.Directories = append(r.Directories, d)
		} else {
			r.Files = append(r.Files, d)
		}
	}
	if c.err != nil {
		return References{}, fmt.Errorf("%w: %w", ErrInvalid, c.err)
	}
	return r, nil
}

// SplitTree returns the encoded Directory messages of the Tree message b, including the root, as
// parts of b. It does not parse them. A root that is encoded in several parts is returned in as
// many. Errors wrap ErrInvalid.
func SplitTree(b []byte) ([][]byte, error) {
	const root, children = 1, 2
	var messages [][]byte
	c := cursor{rest: b}
	for c.next() {
		if c.isBytes(root) || c.isBytes(children) {
			messages = append(messages, c.bytes)
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: in a tree: %w", ErrInvalid, c.err)
	}
	return messages, nil
}
