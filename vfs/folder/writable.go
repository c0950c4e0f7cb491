package folder

import (
	"errors"
	"os"
	"strings"
)

// Writable tries to write a file in a folder.
func Writable(dir string) error {
	f, err := os.CreateTemp(dir, "ready-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Repeat("r", 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
