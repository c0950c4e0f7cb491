package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// ColumnsOf returns the present width of a terminal; MostColumns if it is unknown.
func ColumnsOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return MostColumns
	}
	return int(size.Col)
}

// WantsColour reports whether the user of a terminal wants colours: https://no-color.org.
func WantsColour() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }
