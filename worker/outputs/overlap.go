package outputs

import (
	"path"
	"slices"
)

// entangled reports whether one output may be part of another, or have two paths: then a move for
// one would remove it from the other. This is so if one path leads to the other, or if one leads
// through a symlink. In doubt they are entangled.
func entangled(found []foundPath) bool {
	if len(found) < 2 {
		return false
	}
	dirs, paths := map[string]struct{}{}, make(map[string]struct{}, len(found))
	for _, at := range found {
		if _, again := paths[at.Full]; again {
			return true
		}
		paths[at.Full] = struct{}{}
		dirs[path.Dir(at.Full)] = struct{}{}
	}
	for dir := range dirs {
		for up := dir; ; up = path.Dir(up) {
			if _, is := paths[up]; is {
				return true
			}
			if up == "." {
				break
			}
		}
	}
	return slices.ContainsFunc(found, func(at foundPath) bool { return !at.straight })
}
