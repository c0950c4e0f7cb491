package login

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login/logintest"
)

// A desk is pages to log in to, an issuer, and a browser.
type desk struct {
	*testing.T
	issuer  *logintest.Issuer
	logins  *Logins
	server  *httptest.Server
	options Options
	browser *http.Client
	// to and err are the results of the last log-in.
	to  string
	err error
}

func rules() []auth.Rule {
	return []auth.Rule{
		{Groups: []string{"dev*"}, May: []auth.Right{auth.Execute}},
		{Claims: map[string]string{"hd": "example.com"}, May: []auth.Right{auth.Observe}},
	}
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, issuer: logintest.New(t)}
	d.server = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(d.server.Close)
	d.options = Options{
		Settings: Settings{Issuers: []Issuer{{Name: d.issuer.URL(), ClientID: logintest.ClientID, SecretFile: d.issuer.SecretFile()}}},
		Rules:    rules(), Pages: d.server.URL + "/", KeyFile: filepath.Join(t.TempDir(), "data", "key"),
	}
	d.open()
	d.browser = d.newBrowser()
	return d
}

// open makes Logins of the options.
func (d *desk) open() {
	d.Helper()
	var err error
	if d.logins, err = New(d.options); err == nil {
		err = d.logins.Open()
	}
	if err != nil {
		d.Fatal(err)
	}
}

// newBrowser returns one that has no cookies.
func (d *desk) newBrowser() *http.Client {
	d.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func (d *desk) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/login":
		if d.err = d.logins.Begin(w, r, r.FormValue("with"), r.FormValue("to")); d.err != nil {
			http.Error(w, d.err.Error(), http.StatusForbidden)
		}
	case "/" + Callback:
		if d.to, d.err = d.logins.Finish(w, r); d.err != nil {
			http.Error(w, d.err.Error(), http.StatusForbidden)
		}
	case "/logout":
		d.logins.End(w, r)
	default:
		if who, _ := d.logins.Of(r); who != nil {
			_, _ = w.Write([]byte(who.String()))
		}
	}
}

// get asks for a path and returns the body.
func (d *desk) get(path string) string {
	d.Helper()
	resp, err := d.browser.Get(d.server.URL + path)
	if err != nil {
		d.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.Fatal(err)
	}
	return string(b)
}

// expect checks how a log-in ended, and with whose session.
func (d *desk) expect(code codes.Code, text, who string) {
	d.Helper()
	if status.Code(d.err) != code || d.err != nil && !strings.Contains(d.err.Error(), text) {
		d.Errorf("the log-in ends with %v, want %s %q", d.err, code, text)
	}
	if got := d.get("/"); got != who {
		d.Errorf("the session is that of %q, want %q", got, who)
	}
}

// callback asks for a log-in and returns the address that the issuer sends the browser back to,
// which is not asked for.
func (d *desk) callback() string {
	d.Helper()
	back := ""
	browser := *d.browser
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path != "/"+Callback {
			return nil
		}
		back = r.URL.RequestURI()
		return http.ErrUseLastResponse
	}
	resp, err := browser.Get(d.server.URL + "/login?to=/x")
	if err != nil {
		d.Fatal(err)
	}
	_ = resp.Body.Close()
	return back
}

// cookies returns the cookies of the browser.
func (d *desk) cookies() map[string]string {
	d.Helper()
	u, err := url.Parse(d.server.URL)
	if err != nil {
		d.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range d.browser.Jar.Cookies(u) {
		all[c.Name] = c.Value
	}
	return all
}

func (d *desk) setCookie(name, value string) {
	d.Helper()
	u, err := url.Parse(d.server.URL)
	if err != nil {
		d.Fatal(err)
	}
	d.browser.Jar.SetCookies(u, []*http.Cookie{{Name: name, Value: value, Path: "/"}})
}
