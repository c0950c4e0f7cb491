package web

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/web/charts"
)

// pageRows is the number of rows per page of a long list.
const pageRows = 100

// A choice is a link to the same page with another parameter.
type choice struct {
	Title, Href string
	Current     bool
}

// A rows is one page of a long list.
type rows[T any] struct {
	List []T
	// Pattern is the viewer's search, Next the token of the next page; both may be empty.
	Pattern, Next string
}

// NextQuery returns the query of the next page.
func (r rows[T]) NextQuery() template.URL {
	return template.URL(url.Values{"pattern": {r.Pattern}, "page": {r.Next}}.Encode())
}

// askedFor returns the viewer's search as text and as a pattern; nil matches everything.
func askedFor(r *http.Request) (asked string, p *admin.Pattern, err error) {
	asked = strings.TrimSpace(r.FormValue("pattern"))
	if given, values := r.Form["name"], r.Form["value"]; len(given) > 0 && len(given) == len(values) {
		m := map[string]string{}
		for i, name := range given {
			m[name] = values[i]
		}
		return names.Pairs(m), &admin.Pattern{Attributes: m}, nil
	}
	if asked == "" {
		return "", nil, nil
	}
	parsed, err := pattern.Parse(asked)
	if err != nil {
		return asked, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return asked, &admin.Pattern{Attributes: parsed.Map()}, nil
}

// spanField is the query parameter that chooses the span of charts.
const spanField = "span"

// spanOf returns the index of the requested span, and links to the same page with each span.
func spanOf(r *http.Request) (int, []choice, error) {
	span, err := charts.SpanOf(r.FormValue(spanField))
	if err != nil {
		return 0, nil, status.Error(codes.InvalidArgument, fmt.Sprintf("%v: it is hour, day or two-weeks", err))
	}
	var all []choice
	for i, s := range charts.Spans() {
		query := url.Values{spanField: {s.Name}}
		for _, kept := range []string{"pattern", "page"} {
			if value := r.FormValue(kept); value != "" {
				query.Set(kept, value)
			}
		}
		all = append(all, choice{s.Title, r.URL.Path + "?" + query.Encode(), i == span})
	}
	return span, all, nil
}
