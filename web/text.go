package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/text"
)

// functions are the functions of templates.
var functions = template.FuncMap{
	"ago": ago, "breakable": breakable, "buildPath": buildPath, "bytes": text.Bytes, "commandLine": commandLine, "count": text.Count, "dash": dash, "duration": text.Duration, "glob": printable.Glob, "health": text.Health, "identity": names.Pairs, "more": more,
	"operationID": text.OperationID, "others": others, "percent": text.Percent, "platform": platform, "plural": noun, "runsPath": runsPath, "seconds": seconds, "short": short,
	"state": stateText, "tracePath": tracePath, "worker": workerText, "workerPath": workerPath,
}

// dash returns a dash for an empty text.
func dash(s string) string { return cmp.Or(s, "–") }

// breakable allows line breaks between the parts of a name.
func breakable(name string) template.HTML {
	return template.HTML(strings.NewReplacer("/", "/<wbr>", ":", ":<wbr>", "_", "_<wbr>").Replace(template.HTMLEscapeString(name)))
}

// buildPath returns the page of an invocation.
func buildPath(invocation string) string { return "/builds/" + url.PathEscape(invocation) }

func short(s string) string { return dash(text.Short(s)) }

func ago(at *timestamppb.Timestamp) string { return dash(text.Ago(at)) }

func platform(list []*admin.Property) string { return dash(text.Platform(list, ", ")) }

// noun returns the given singular noun, or its plural, to follow the number n.
func noun(n any, one string) string {
	v := reflect.ValueOf(n)
	if v.CanUint() {
		return plural.Noun(v.Uint(), one)
	}
	return plural.Noun(v.Int(), one)
}

// others describes how many workers of a queue are neither idle nor busy, and why.
func others(q *admin.Queue) string {
	var parts []string
	for _, part := range []struct {
		n    int32
		what string
	}{{q.GetDraining(), "draining"}, {q.GetResting(), "resting"}, {q.GetSuspended(), "suspended"}} {
		if part.n > 0 {
			parts = append(parts, text.Count(part.n)+" "+part.what)
		}
	}
	return strings.Join(parts, ", ")
}

// more returns how many there are besides the one that is shown.
func more(all int32) string { return text.Count(all - 1) }

// seconds drops fractions of a second.
func seconds(d time.Duration) string {
	if d < time.Second {
		return dash("")
	}
	return d.Round(time.Second).String()
}

// workerPath returns the page of the machine in a worker's key; empty if the key has no machine.
func workerPath(key string) string {
	host := text.Host(key)
	if host == "" {
		return ""
	}
	return "/workers?" + url.Values{"pattern": {"host=" + strings.ReplaceAll(host, ",", "?")}}.Encode()
}

// workerText returns the host of a worker or, without a host, its machine.
func workerText(key string) string { return dash(cmp.Or(text.Host(key), text.Machine(key))) }

// runsPath returns the page with the runs of a target.
func runsPath(target string) string {
	return "/history?" + url.Values{"q": {"target=" + strings.NewReplacer("*", "?", ",", "?", " ", "?").Replace(target)}}.Encode()
}

// maxWhole is the maximum length in bytes of an argument that is kept on one line.
const maxWhole = 200

// commandLine writes a command in shell syntax. An option is not broken at its dashes if it fits on
// the next line.
func commandLine(args []string) template.HTML {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		word := template.HTMLEscapeString(printable.Command([]string{a}))
		if strings.Contains(a, "-") && len(a) <= maxWhole && !strings.ContainsAny(a, " \t\n") {
			word = `<span class="whole">` + word + "</span>"
		}
		b.WriteString(word)
	}
	return template.HTML(b.String())
}

// queueID returns an identifier of a queue.
func queueID(q *admin.Queue) string {
	return fmt.Sprintf("%s|%s|%d", q.GetInstanceNamePrefix(), platform(q.GetPlatform()), q.GetSizeClass())
}

func stateText(s admin.Worker_State) string { return strings.ToLower(s.String()) }
