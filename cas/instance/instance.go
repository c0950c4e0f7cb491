package instance

import (
	"errors"
	"fmt"
	"iter"
	"strings"
)

// MaxBytes is the length of the longest instance name. Each of its segments costs a lookup of a
// pool, and records are kept below it.
const MaxBytes = 1024

// ErrInvalid is wrapped by every error of Check.
var ErrInvalid = errors.New("invalid instance name")

// Check returns an error that wraps ErrInvalid unless name can be an instance name: empty, or
// segments with single slashes between them, none of which is reserved, of dots, or has a NUL.
func Check(name string) error {
	if len(name) > MaxBytes {
		return fmt.Errorf("%w: it has %d bytes, at most %d are taken", ErrInvalid, len(name), MaxBytes)
	}
	if name == "" {
		return nil
	}
	for s := range strings.SplitSeq(name, "/") {
		if fault := segmentFault(s); fault != "" {
			return fmt.Errorf("%w %.200q: %s", ErrInvalid, name, fault)
		}
	}
	return nil
}

// segmentFault says why s is not a valid segment; "" if it is valid.
func segmentFault(s string) string {
	switch {
	case s == "":
		return "it has an empty segment"
	case s == "." || s == "..":
		return fmt.Sprintf("it has the segment %q, which some would resolve", s)
	case Reserved(s):
		return fmt.Sprintf("it has the reserved segment %q", s)
	case strings.IndexByte(s, 0) >= 0:
		return "it has a NUL"
	}
	return ""
}

// Reserved reports whether s must not be a segment of an instance name. Without such segments a
// resource name can be split, whatever its instance name is (REv2, "ContentAddressableStorage").
func Reserved(s string) bool {
	switch s {
	case "blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs":
		return true
	}
	return false
}

// Below reports whether name is prefix or below it, which means that the segments of prefix begin
// it. All names are below the empty one.
func Below(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

// Join returns the instance name of name below prefix; either may be empty. "../x" is below it,
// too.
func Join(prefix, name string) string {
	return strings.Trim(prefix+"/"+name, "/")
}

// Prefixes yields name and then each shorter run of its leading segments, the empty one last.
func Prefixes(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(name) && name != "" {
			name = name[:max(strings.LastIndexByte(name, '/'), 0)]
		}
	}
}

// Suffix returns what follows prefix in name, which is below it.
func Suffix(name, prefix string) string {
	if prefix == "" {
		return name // unread: a million names are in no cache
	}
	return strings.TrimPrefix(name[len(prefix):], "/")
}
