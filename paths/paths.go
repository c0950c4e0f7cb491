package paths

import "strings"

// Below reports whether path is dir or below it. Both are clean, and either both are absolute or
// neither; every path is below the empty one.
func Below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "" || dir == "/")
}
