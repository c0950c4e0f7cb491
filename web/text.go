package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// functions are what templates call.
var functions = template.FuncMap{
	"ago": ago, "bytes": byteText, "dash": dash, "duration": durationText, "identity": identity,
	"operationID": operationID, "percent": percent, "platform": platformText, "queueID": queueID, "short": short,
	"state": stateText,
}

// dash stands for nothing.
func dash(s string) string { return cmp.Or(s, "–") }

// short is the part of HASH/SIZE that people compare.
func short(s string) string { return dash(s[:min(len(s), 12)]) }

// ago says how long something is past.
func ago(at *timestamppb.Timestamp) string {
	if at == nil {
		return "–"
	}
	return max(time.Since(at.AsTime()), 0).Round(time.Second).String()
}

// durationText leaves out what is too small to matter.
func durationText(d any) string {
	var of time.Duration
	switch d := d.(type) {
	case time.Duration:
		of = d
	case *durationpb.Duration:
		if d == nil {
			return "–"
		}
		of = d.AsDuration()
	}
	switch abs := of.Abs(); {
	case abs >= time.Minute:
		return of.Round(time.Second).String()
	case abs >= time.Second:
		return of.Round(10 * time.Millisecond).String()
	case abs >= time.Millisecond:
		return of.Round(100 * time.Microsecond).String()
	}
	return of.Round(time.Microsecond).String()
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func byteText(n int64) string {
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

func platformText(list []*admin.Property) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = p.GetName() + "=" + p.GetValue()
	}
	return dash(strings.Join(parts, ", "))
}

// identity is a worker's, in the form of a pattern that matches it alone.
func identity(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// queueID tells a queue from all others.
func queueID(q *admin.Queue) string {
	return fmt.Sprintf("%s|%s|%d", q.GetInstanceNamePrefix(), platformText(q.GetPlatform()), q.GetSizeClass())
}

func stateText(s admin.Worker_State) string { return strings.ToLower(s.String()) }
