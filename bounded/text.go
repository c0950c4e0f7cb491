package bounded

import "strings"

// Text returns s, or as much of its begin as most bytes have room for and "…", if it is longer.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
