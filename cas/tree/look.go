package tree

// Look is the requested information about a path: none, one or several of the following, added up.
type Look uint8

const (
	// LookUp is whether there is anything, and if so its data for stat(2): kind, permissions and
	// time, of a file the size, of a symlink the length of its target.
	LookUp Look = 1 << iota
	// LookInside is the content: the bytes of a file, the target of a symlink, and of
	// a directory all that is in it at any depth.
	LookInside
	// LookThrough is the names in a directory and the kind of each, as readdir(3) has them.
	LookThrough
)
