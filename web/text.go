package web

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/text"
)

// functions are what templates call.
var functions = template.FuncMap{
	"ago": ago, "bytes": text.Bytes, "dash": dash, "duration": durationText, "identity": text.Pairs,
	"operationID": operationID, "percent": percent, "platform": platform, "queueID": queueID, "short": short,
	"state": stateText,
}

// dash stands for nothing.
func dash(s string) string { return cmp.Or(s, "–") }

func short(s string) string { return dash(text.Short(s)) }

func ago(at *timestamppb.Timestamp) string { return dash(text.Ago(at)) }

func platform(list []*admin.Property) string { return dash(text.Platform(list, ", ")) }

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

// queueID tells a queue from all others.
func queueID(q *admin.Queue) string {
	return fmt.Sprintf("%s|%s|%d", q.GetInstanceNamePrefix(), platform(q.GetPlatform()), q.GetSizeClass())
}

func stateText(s admin.Worker_State) string { return strings.ToLower(s.String()) }
