package tree

// Look is a set of kinds of information about a path, combined by bitwise or.
type Look uint8

const (
	// LookUp is whether the path exists, and its data for stat(2): kind, permissions and time, the
	// size of a file, the length of a symlink's target.
	LookUp Look = 1 << iota
	// LookInside is the content: the bytes of a file, the target of a symlink, or everything in a
	// directory at any depth.
	LookInside
	// LookThrough is the names in a directory and the kind of each, as readdir(3) returns them.
	LookThrough
)
