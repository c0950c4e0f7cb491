package web

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAudiences lists the audience of each page, so a new page needs a decision here.
func TestAudiences(t *testing.T) {
	b := newBrowser(t, false)
	want := map[string]Audience{
		"GET /static/":                          Strangers,
		"GET /{$}":                              Owners,
		"GET /invocations":                      Operators,
		"GET /operations":                       Owners,
		"GET /operations/{id}":                  Owners,
		"GET /operations/{id}/{stream}":         Owners,
		"GET /actions/{function}/{hash}/{size}": Readers,
		"GET /blobs/{function}/{hash}/{size}":   Readers,
		"GET /folders/{function}/{hash}/{size}": Readers,
		"GET /builds/{invocation}":              Owners,
		"GET /history":                          Owners,
		"GET /workers":                          Operators,
		"GET /quotas":                           Operators,
		"GET /":                                 Operators,
		"POST /operations/{id}/cancel":          Administrators,
		"POST /workers/drain":                   Administrators,
		"POST /workers/undrain":                 Administrators,
	}
	if !maps.Equal(b.site.audiences, want) {
		t.Errorf("audiences are %v, want %v", b.site.audiences, want)
	}
	for request, want := range map[string]Audience{
		"GET /operations/x": Owners, "HEAD /operations/x": Owners, "GET /nothing": Operators,
		"POST /operations/x": Administrators, "PUT /nothing": Administrators, "POST /operations/x/cancel": Administrators,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := b.site.Audience(httptest.NewRequest(method, path, http.NoBody)); got != want {
			t.Errorf("%s has audience %d, want %d", request, got, want)
		}
	}
}
