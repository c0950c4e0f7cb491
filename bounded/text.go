package bounded

import "strings"

// Text returns s or, if it has more than most bytes, its beginning and "…".
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
