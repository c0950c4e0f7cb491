package text

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// Bytes writes a number of bytes with the largest unit that leaves it two digits.
func Bytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Ago says how long something is past.
func Ago(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	return max(time.Since(at.AsTime()), 0).Round(time.Second).String()
}

// Short is the part of HASH/SIZE, or of another long name, that people compare.
func Short(s string) string { return s[:min(len(s), 12)] }

// Pairs writes a map as name=value,…, sorted, which is a pattern if there are no commas in it.
func Pairs(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// Platform writes properties as name=value, with sep between them, in their order.
func Platform(list []*admin.Property, sep string) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = p.GetName() + "=" + p.GetValue()
	}
	return strings.Join(parts, sep)
}
