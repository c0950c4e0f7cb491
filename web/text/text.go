package text

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/plural"
)

// Bytes formats a number of bytes with the largest fitting unit. Values below ten have one decimal.
func Bytes(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		one := int64(1) << (10 * (3 - i))
		switch {
		case n >= 10*one:
			return fmt.Sprintf("%d %s", n/one, unit)
		case n >= one:
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(one)), ".0") + " " + unit
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Ago formats the time since at.
func Ago(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	return max(time.Since(at.AsTime()), 0).Round(time.Second).String()
}

// Health describes the damage that a store has found, and the progress of its scrub.
func Health(h *live.StoreHealth) string {
	var parts []string
	if n := h.GetDamagedBlobs(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d damaged", n))
	}
	switch s := h.GetScrub(); {
	case h == nil:
	case s == nil:
		parts = append(parts, "no scrub")
	case s.GetEnded() != nil:
		parts = append(parts, "scrubbed "+Ago(s.GetEnded())+" ago, next in "+In(s.GetDue()))
	case s.GetDue() == nil:
		parts = append(parts, "scrub begins")
	default:
		parts = append(parts, fmt.Sprintf("scrub %.0f %%, ends in %s", 100*s.GetDone(), In(s.GetDue())))
	}
	return strings.Join(parts, "; ")
}

// In formats the time until at.
func In(at *timestamppb.Timestamp) string {
	if at == nil {
		return ""
	}
	d := max(time.Until(at.AsTime()), 0)
	if d > 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.Round(time.Second).String()
}

// Hindrance says why the scheduler gives a worker no actions for a while, or only one; empty if it
// gives the worker actions, or if the worker has not said why it wants none.
func Hindrance(w *admin.Worker) string {
	if why := w.GetReport().GetResting(); why != "" && w.GetState() == admin.Worker_RESTING {
		return "takes no actions until it can run them: " + why
	}
	if w.GetFailedLately() == 0 {
		return ""
	}
	when := "tried with one action"
	if w.GetSuspendedUntil() != nil {
		when = "tried again in " + In(w.GetSuspendedUntil())
	}
	return fmt.Sprintf("suspended, %s: %s in a row failed, %d of the last 16, and those of other workers did not",
		when, plural.Of(w.GetFailedInARow(), "action"), w.GetFailedLately())
}

// Short returns the beginning of HASH/SIZE, or of another long name, for display.
func Short(s string) string { return s[:min(len(s), 12)] }

// Platform formats properties as name=value, separated by sep, in their order.
func Platform(list []*admin.Property, sep string) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = p.GetName() + "=" + p.GetValue()
	}
	return strings.Join(parts, sep)
}

// Host returns the host in the key of a worker; empty if the key has none.
func Host(key string) string {
	return identity(key)[names.HostKey]
}

// Worker formats the key of a worker as its identity, which is a valid pattern.
func Worker(key string) string {
	if id := identity(key); id != nil {
		return names.Pairs(id)
	}
	return key // the key comes from another scheduler, or from a result
}

// Machine formats the key of a worker, or its name in a result, as its identity without the
// position.
func Machine(key string) string {
	if id := identity(key); id != nil {
		return names.Pairs(names.WithoutPosition(id))
	}
	return strings.Join(slices.DeleteFunc(strings.Split(key, ","), func(pair string) bool {
		key, _, ok := strings.Cut(pair, "=")
		return ok && names.IsPosition(key)
	}), ",")
}

// identity returns the identity in the key of a worker; nil if the key is not an identity.
func identity(key string) (id map[string]string) {
	if json.Unmarshal([]byte(key[max(strings.IndexByte(key, '{'), 0):]), &id) != nil {
		return nil
	}
	return id
}

// Glob returns a pattern for a text. It replaces characters that patterns cannot contain, so other
// texts may match too.
func Glob(s string) string { return strings.ReplaceAll(s, "*", "?") }

// OperationID returns an operation's name without the prefix.
func OperationID(name string) string { return strings.TrimPrefix(name, names.OperationPrefix) }
