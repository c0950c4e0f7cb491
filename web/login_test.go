package web

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/auth/login/logintest"
)

// logins returns Logins with two issuers that never answer.
func logins(t *testing.T) *login.Logins {
	t.Helper()
	l, err := login.New(login.Options{
		Settings: login.Settings{Issuers: []login.Issuer{
			{Name: "https://127.0.0.1:1/a", Title: "Acme & Sons", ClientID: "x"}, {Name: "https://127.0.0.1:1/b", ClientID: "x"},
		}},
		Rules: []auth.Rule{{Users: []string{"ann"}, May: []auth.Right{auth.Observe}}},
		Pages: "http://127.0.0.1/", KeyFile: filepath.Join(t.TempDir(), "key"),
	})
	if err == nil {
		err = l.Open()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLogInPage chooses an issuer, and reads why the log-in failed.
func TestLogInPage(t *testing.T) {
	b := newBrowser(t, false)
	b.get("/login", http.StatusNotFound) // log-in is off
	b.change(func(o *Options) { o.Login = logins(t) })
	for _, path := range []string{"/login", "/login/callback", "/logout"} {
		if got := b.site.Audience(httptest.NewRequest(http.MethodGet, path, nil)); got != Strangers {
			t.Errorf("%s is for %d", path, got)
		}
	}
	expect(t, b.get("/login?to=/workers", 200), `href="/login?to=%2Fworkers&amp;with=Acme&#43;%26&#43;Sons">Acme &amp; Sons`, `with=127.0.0.1%3A1">127.0.0.1:1`)
	expect(t, b.get("/login?with=Acme+%26+Sons&to=//evil", 503), "You are not logged in", "cannot be reached", `href="/login?to=%2F">Log in`)
	expect(t, b.get("/login?with=x", 403), "there is no log-in with")
	page := b.get("/login/callback?error=evil%20text", 403)
	expect(t, page, "You are not logged in", "begun in another browser")
	if strings.Contains(page, "evil text") {
		t.Error("a link can put text on the page")
	}
	expect(t, b.get("/logout", 200), "You are logged out")
	expect(t, b.get("/workers", 200), `href="/login?to=%2Fworkers">Log in`)
}

// TestRefused redirects browsers to the log-in. Other clients get an error.
func TestRefused(t *testing.T) {
	b := newBrowser(t, false)
	b.change(func(o *Options) { o.Login = logins(t) })
	for _, test := range []struct {
		method, path, accept, referer string
		why                           codes.Code
		code                          int
		to                            string
	}{
		{"GET", "/workers?pattern=a%3Db", "text/html", "", codes.Unauthenticated, 303, "/login?to=%2Fworkers%3Fpattern%3Da%253Db"},
		{"GET", "//evil.example.com", "text/html", "", codes.Unauthenticated, 303, "/login?to=%2F"},
		{"GET", "/workers", eventStream, "", codes.Unauthenticated, 401, ""},
		{"GET", "/workers", "", "", codes.PermissionDenied, 403, ""},
		{"GET", "/workers", "", "", codes.Unavailable, 503, ""},
		{"GET", "/workers", "text/html", "", codes.PermissionDenied, 403, ""},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.Header.Set("Accept", test.accept)
		r.Header.Set("Referer", test.referer)
		w := httptest.NewRecorder()
		b.site.Refused(w, r, status.New(test.why, "the reason"))
		if got := w.Header().Get("Location"); w.Code != test.code || got != test.to {
			t.Errorf("%s %s: %d to %q, want %d to %q", test.method, test.path, w.Code, got, test.code, test.to)
		}
		if test.to == "" && !strings.Contains(w.Body.String(), "the reason") {
			t.Errorf("%s %s: %s", test.method, test.path, w.Body)
		}
	}
	for referer, to := range map[string]string{
		"http://example.com/workers?page=2": "/login?to=%2Fworkers%3Fpage%3D2", "http://evil.example.com/x": "/login?to=%2F", "": "/login?to=%2F",
	} {
		r := httptest.NewRequest(http.MethodPost, "/workers/drain", nil)
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Referer", referer)
		w := httptest.NewRecorder()
		b.site.Refused(w, r, status.New(codes.Unauthenticated, "the reason"))
		if got := w.Header().Get("Location"); w.Code != 401 || got != "" {
			t.Errorf("a form of %s: %d to %q", referer, w.Code, got)
		}
		expect(t, w.Body.String(), "You are no longer logged in", "Nothing was changed. Log in and try again.", `href="`+to+`">Log in`)
	}
	b.change(func(o *Options) { o.Login = nil })
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html")
	if b.site.Refused(w, r, status.New(codes.Unauthenticated, "the reason")); w.Code != 401 {
		t.Errorf("without log-in: %d", w.Code)
	}
}

// An endless output sends something and then stays open.
type endless struct {
	bytestream.UnimplementedByteStreamServer
}

func (*endless) Read(_ *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	if err := stream.Send(&bytestream.ReadResponse{Data: []byte("one")}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// moving are paths of streams: a live page, and output.
func moving() []string { return []string{"/workers", "/" + operationOf + "/stdout"} }

// TestPagesEndWithTheirSession has streams make the browser reload the page when the session
// expires.
func TestPagesEndWithTheirSession(t *testing.T) {
	b := newBrowser(t, true)
	b.change(func(o *Options) { o.Output = &endless{} })
	b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		b.site.Handler().ServeHTTP(w, r.WithContext(ctx))
	})
	for _, path := range moving() {
		var last string
		b.follow(path, func(name, _ string) bool {
			last = name
			return true
		})
		if last != "reload" {
			t.Errorf("%s ends with %q", path, last)
		}
	}
}

// TestPagesEndWhenTheirViewerLogsOut logs a user out while his browser has streams open.
func TestPagesEndWhenTheirViewerLogsOut(t *testing.T) {
	for _, path := range moving() {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			b := newBrowser(t, true)
			issuer := logintest.New(t)
			logins, err := login.New(login.Options{
				Settings: login.Settings{Issuers: []login.Issuer{{Name: issuer.URL(), ClientID: logintest.ClientID, SecretFile: issuer.SecretFile()}}},
				Rules:    []auth.Rule{{Users: []string{"ann@example.com"}, May: []auth.Right{auth.Observe}}},
				Pages:    b.server.URL + "/", KeyFile: filepath.Join(t.TempDir(), "key"),
			})
			if err == nil {
				err = logins.Open()
			}
			if err != nil {
				t.Fatal(err)
			}
			b.change(func(o *Options) { o.Login, o.Output = logins, &endless{} })
			session := logIn(t, b)
			b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Cookie", session)
				b.site.Handler().ServeHTTP(w, r)
			})
			var names []string
			b.follow(path, func(name, _ string) bool {
				if names = append(names, name); len(names) == 1 {
					r := httptest.NewRequest(http.MethodPost, "/logout", nil)
					r.Header.Set("Cookie", session)
					logins.End(httptest.NewRecorder(), r)
				}
				return name != "alive"
			})
			if names[len(names)-1] != "left" {
				t.Errorf("ends with %q", names)
			}
		})
	}
}

// logIn returns the cookies of a browser that has logged in.
func logIn(t *testing.T, b *browser) string {
	t.Helper()
	b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			b.site.login.logIn(w, r)
		case "/" + login.Callback:
			b.site.login.loggedIn(w, r)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Jar: jar}).Get(b.server.URL + "/login")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	var all []string
	for _, c := range jar.Cookies(resp.Request.URL) {
		all = append(all, c.String())
	}
	return strings.Join(all, "; ")
}
