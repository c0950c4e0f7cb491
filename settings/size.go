package settings

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes with an optional unit: 500M, 20GiB. Empty is 0.
func ParseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number := strings.TrimRight(s, "kKMGTiB")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s[len(number):]), "B"), "I")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("size %q is not a number of bytes such as 500M or 20G", s)
	}
	return n << shift, nil
}

// Units that programs know: of texts that ParseSize reads, of times such as 1m30s, and of paths.
const (
	Size = "SIZE"
	Time = "TIME"
	Path = "PATH"
)

// A sizeText is a text that is empty or a size.
type sizeText string

// String returns the text.
func (s *sizeText) String() string { return string(*s) }

// Type is for pflag.
func (s *sizeText) Type() string { return "size" }

// Set parses a size.
func (s *sizeText) Set(text string) error {
	if _, err := ParseSize(text); err != nil {
		return err
	}
	*s = sizeText(text)
	return nil
}
