package eintr

import "golang.org/x/sys/unix"

// Ignore calls call until it returns another error than EINTR, or none.
func Ignore(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
