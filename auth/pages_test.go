package auth

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
)

// cookies are Sessions whose cookie is the name of the user. They end soon.
type cookies struct{}

func (cookies) Of(r *http.Request) (*Identity, time.Time) {
	c, err := r.Cookie("session")
	if err != nil {
		return nil, time.Time{}
	}
	return &Identity{User: c.Value}, time.Now().Add(time.Hour)
}

// TestSessions has pages for users who have logged in, whatever their certificate. Forms from other
// sites are refused.
func TestSessions(t *testing.T) {
	g, err := New(Options{Certificates: true, LogIn: true, Sessions: cookies{}, Rules: []Rule{
		{Users: []string{"ann"}, May: []Right{Administer}}, {Users: []string{"bob"}, May: []Right{Execute}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, session, certificate string
		headers                      map[string]string
		want                         int
	}{
		"nobody":                      {want: 401},
		"a session":                   {session: "ann", want: 200},
		"one without the right":       {session: "bob", want: 403},
		"over a certificate":          {session: "ann", certificate: "bob", want: 200},
		"less than the certificate":   {session: "bob", certificate: "ann", want: 403},
		"a certificate":               {certificate: "ann", want: 200},
		"a form":                      {method: "POST", session: "ann", headers: map[string]string{"Origin": "http://example.com"}, want: 200},
		"a form, by fetch metadata":   {method: "POST", session: "ann", headers: map[string]string{"Sec-Fetch-Site": "same-origin"}, want: 200},
		"of another site":             {method: "POST", session: "ann", headers: map[string]string{"Origin": "http://evil.example.com"}, want: 403},
		"of another host of the site": {method: "POST", session: "ann", headers: map[string]string{"Sec-Fetch-Site": "same-site"}, want: 403},
		"of nobody knows where":       {method: "POST", session: "ann", want: 403},
		"of a program":                {method: "POST", certificate: "ann", want: 200},
	} {
		r := httptest.NewRequest(test.method, "/", nil)
		if test.session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: test.session})
		}
		if state := shownBy(test.certificate); test.certificate != "" {
			r.TLS = &state
		}
		for name, value := range test.headers {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		g.HTTP(Administer, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, ends := r.Context().Deadline(); ends != (test.session != "") {
				t.Errorf("%s: the page ends: %t", name, ends)
			}
		})).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, test.want, w.Body)
		}
	}
}

// TestFormsOfOpenPages: pages for everyone accept forms, but they do not accept a form from another
// site with the session of a user.
func TestFormsOfOpenPages(t *testing.T) {
	g, err := New(Options{LogIn: true, Sessions: cookies{}, Rules: []Rule{{Users: []string{"ann"}, May: []Right{Observe}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, session, origin string
		want                    int
	}{
		"a page":                            {want: 200},
		"a page of somebody":                {session: "ann", want: 200},
		"a form":                            {method: "POST", session: "ann", origin: "http://example.com", want: 200},
		"a form of another site":            {method: "POST", session: "ann", origin: "http://evil.example.com", want: 403},
		"a form of nobody knows where":      {method: "POST", session: "ann", want: 403},
		"a form of nobody":                  {method: "POST", want: 200},
		"a form of somebody without rights": {method: "POST", session: "eve", origin: "http://example.com", want: 200},
	} {
		r := httptest.NewRequest(test.method, "/", nil)
		if test.session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: test.session})
		}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		w := httptest.NewRecorder()
		g.OpenHTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, test.want, w.Body)
		}
	}
}

// TestWaysToLogIn: if users can only log in on pages, the refusal says so.
func TestWaysToLogIn(t *testing.T) {
	g, err := New(Options{LogIn: true, Sessions: cookies{}, Rules: []Rule{{Users: []string{"ann"}, May: []Right{Observe}}}})
	if err != nil {
		t.Fatal(err)
	}
	var why *status.Status
	asked := g.Answering(func(_ http.ResponseWriter, r *http.Request, s *status.Status) {
		why = s
		if Allowed(r.Context(), Observe, "") {
			t.Error("who is refused may observe")
		}
	})
	w := httptest.NewRecorder()
	asked.HTTP(Observe, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if !strings.Contains(why.String(), "Unauthenticated") || !strings.HasSuffix(why.Message(), "log in to the pages") {
		t.Errorf("refused with %v", why)
	}
}

// TestPassports: a passport has no more than rules ask for, and gives the same rights.
func TestPassports(t *testing.T) {
	list := []Rule{
		{Groups: []string{"dev-*", "ops"}, May: []Right{Execute}},
		{Groups: []string{"ops", "*-leads"}, May: []Right{Observe}},
		{Claims: map[string]string{"hd": "example.com", "team": "x*"}, May: []Right{Administer}},
	}
	who := &Identity{User: "ann", Groups: []string{"ops", "all", "dev-a", "b-leads"}, claims: map[string][]string{
		"hd": {"example.com"}, "team": {"y", "x1", "x2"}, "secret": {"s"},
	}}
	got := who.Passport(list)
	want := Passport{User: "ann", Groups: []string{"b-leads", "dev-a", "ops"}, Claims: map[string][]string{"hd": {"example.com"}, "team": {"x1", "x2"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, r := range list {
		made, err := newRule(r)
		if err != nil || !made.isFor(who) || !made.isFor(got.Identity()) {
			t.Errorf("%+v is not for him: %v", r, err)
		}
	}
	if got := (&Identity{User: "bob"}).Passport(list); len(got.Groups)+len(got.Claims) > 0 {
		t.Errorf("of nothing: %+v", got)
	}
}
