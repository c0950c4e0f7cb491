package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/text"
)

// functions are what templates call.
var functions = template.FuncMap{
	"ago": ago, "buildPath": buildPath, "bytes": text.Bytes, "count": count, "dash": dash, "draining": draining, "duration": durationText, "health": text.Health, "identity": text.Pairs,
	"operationID": text.OperationID, "percent": percent, "platform": platform, "seconds": seconds, "short": short,
	"state": stateText, "tracePath": tracePath, "worker": workerText, "workerPath": workerPath,
}

// dash stands for nothing.
func dash(s string) string { return cmp.Or(s, "–") }

// buildPath is where the page of an invocation is.
func buildPath(invocation string) string { return "/builds/" + url.PathEscape(invocation) }

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

// draining counts the workers of a queue that get no more actions.
func draining(q *admin.Queue) string { return count(q.GetDraining() - q.GetResting()) }

// seconds leaves out what is less than one.
func seconds(d time.Duration) string {
	if d < time.Second {
		return dash("")
	}
	return d.Round(time.Second).String()
}

// count writes an integer with a thin space between thousands.
func count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u2009" + digits[i:]
	}
	return digits
}

// workerPath is where the machine of the key of a worker is; empty if it does not say.
func workerPath(key string) string {
	host := text.Host(key)
	if host == "" {
		return ""
	}
	return "/workers?" + url.Values{"pattern": {"host=" + strings.ReplaceAll(host, ",", "?")}}.Encode()
}

func workerText(key string) string { return dash(text.Worker(key)) }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// queueID tells a queue from all others.
func queueID(q *admin.Queue) string {
	return fmt.Sprintf("%s|%s|%d", q.GetInstanceNamePrefix(), platform(q.GetPlatform()), q.GetSizeClass())
}

func stateText(s admin.Worker_State) string { return strings.ToLower(s.String()) }
