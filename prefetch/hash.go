package prefetch

import "strings"

// PathHash is the hash of a path in an input root: the 64-bit FNV-1a hash of the path with a slash
// before each component. So the hash of a child can be computed from the hash of its directory. All
// k hashes of a path in a Profile are computed from it.
type PathHash uint64

// RootHash is the hash of the root, whose path is empty. It is the offset basis of FNV-1a.
const RootHash PathHash = 0xcbf29ce484222325

// fnvPrime is the factor of 64-bit FNV-1a.
const fnvPrime = 0x100000001b3

// Child returns the hash of the entry called name in the directory whose hash is h. A name has at
// least one byte and no slash; this is not checked.
func (h PathHash) Child(name string) PathHash { return h.slash().add(name) }

// HashPath returns the hash of a path in the form of vfs's OnFirstRead: "" is the root, other paths
// are names separated by single slashes. It does not clean the path.
func HashPath(path string) PathHash {
	if path == "" {
		return RootHash
	}
	return RootHash.Child(path) // slashes between names count like all bytes
}

// slash returns the hash of the text of h with another slash at its end.
func (h PathHash) slash() PathHash { return (h ^ '/') * fnvPrime }

func (h PathHash) add(s string) PathHash {
	for i := range len(s) {
		h = (h ^ PathHash(s[i])) * fnvPrime
	}
	return h
}

// parentOf returns the path of the directory that holds path, and false for the root.
func parentOf(path string) (string, bool) {
	if path == "" {
		return "", false
	}
	return path[:max(strings.LastIndexByte(path, '/'), 0)], true
}
