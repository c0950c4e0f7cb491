package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/text"
)

// functions are what templates call.
var functions = template.FuncMap{
	"ago": ago, "buildPath": buildPath, "bytes": text.Bytes, "count": text.Count, "dash": dash, "draining": draining, "duration": text.Duration, "health": text.Health, "identity": text.Pairs,
	"operationID": text.OperationID, "percent": text.Percent, "platform": platform, "seconds": seconds, "short": short,
	"state": stateText, "tracePath": tracePath, "worker": workerText, "workerPath": workerPath,
}

// dash stands for nothing.
func dash(s string) string { return cmp.Or(s, "–") }

// buildPath is where the page of an invocation is.
func buildPath(invocation string) string { return "/builds/" + url.PathEscape(invocation) }

func short(s string) string { return dash(text.Short(s)) }

func ago(at *timestamppb.Timestamp) string { return dash(text.Ago(at)) }

func platform(list []*admin.Property) string { return dash(text.Platform(list, ", ")) }

// draining counts the workers of a queue that get no more actions.
func draining(q *admin.Queue) string { return text.Count(q.GetDraining() - q.GetResting()) }

// seconds leaves out what is less than one.
func seconds(d time.Duration) string {
	if d < time.Second {
		return dash("")
	}
	return d.Round(time.Second).String()
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

// queueID tells a queue from all others.
func queueID(q *admin.Queue) string {
	return fmt.Sprintf("%s|%s|%d", q.GetInstanceNamePrefix(), platform(q.GetPlatform()), q.GetSizeClass())
}

func stateText(s admin.Worker_State) string { return strings.ToLower(s.String()) }

// quoted writes a command as a shell would take it.
func quoted(args []string) string {
	list := make([]string, len(args))
	for i, a := range args {
		plain := a != "" && !strings.ContainsFunc(a, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_", r)
		})
		if list[i] = a; !plain {
			list[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}
