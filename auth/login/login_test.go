package login

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	// to and err are what the last log-in came to.
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
	if d.logins, err = New(d.options); err != nil {
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

// callback asks for a log-in and returns the address that the issuer sends the browser back to, which is not asked for.
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

// cookies returns those of the browser.
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

// TestLogIn has somebody log in, over a restart, and log out; his cookie is of no use then.
func TestLogIn(t *testing.T) {
	d := newDesk(t)
	d.expect(codes.OK, "", "")
	d.issuer.Say(map[string]any{
		"email": "ann@example.com", "email_verified": true, "groups": []string{"ops", "devs", "dev-2"}, "hd": "example.com", "other": "not asked for",
	})
	d.get("/login?to=/operations%3Fpattern%3Da")
	d.expect(codes.OK, "", "ann@example.com (dev-2, devs)")
	if d.to != "/operations?pattern=a" {
		t.Errorf("returned to %q", d.to)
	}
	asked := d.issuer.Asked()[0]
	if got := asked.Get("scope"); got != "openid email profile" || asked.Get("nonce") == "" || asked.Get("redirect_uri") != d.options.Pages+Callback {
		t.Errorf("the issuer was asked for %v", asked)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	kept := d.cookies()[sessionCookie]
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: kept})
	who, until := d.logins.Of(r)
	if who.Claim("hd") != "example.com" || who.Claim("other") != "" || time.Until(until) > defaultSession || time.Until(until) < defaultSession-time.Hour {
		t.Errorf("%v with %q, %q until %s", who, who.Claim("hd"), who.Claim("other"), until)
	}
	d.open()
	d.expect(codes.OK, "", "ann@example.com (dev-2, devs)")
	d.get("/logout")
	d.expect(codes.OK, "", "")
	if _, ok := d.cookies()[sessionCookie]; ok {
		t.Error("the browser still has the cookie")
	}
	d.setCookie(sessionCookie, kept)
	d.expect(codes.OK, "", "")
}

// TestCookies have no script and no other site use them.
func TestCookies(t *testing.T) {
	for pages, want := range map[string]string{
		"https://farm.example.com/": "__Host-x=v; Path=/; Max-Age=59; HttpOnly; Secure; SameSite=Lax",
		"http://127.0.0.1:8981/":    "x=v; Path=/; Max-Age=59; HttpOnly; SameSite=Lax",
	} {
		l, err := New(Options{Rules: rules(), Pages: pages, KeyFile: filepath.Join(t.TempDir(), "key")})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.cookie("x", "v", time.Now().Add(time.Minute)).String(); got != want {
			t.Errorf("%s: %s, want %s", pages, got, want)
		}
	}
}

// TestRefusedTokens has an issuer whose ID tokens are not to be taken.
func TestRefusedTokens(t *testing.T) {
	for name, test := range map[string]struct {
		claims map[string]any
		text   string
	}{
		"nonce of another log-in":   {map[string]any{"nonce": "x"}, "of another log-in"},
		"no nonce":                  {map[string]any{"nonce": nil}, "of another log-in"},
		"audience":                  {map[string]any{"aud": "mail"}, "audience"},
		"issuer":                    {map[string]any{"iss": "https://other.example.com"}, "different provider"},
		"expired":                   {map[string]any{"exp": time.Now().Add(-defaultLeeway - time.Minute).Unix()}, "expired"},
		"no user":                   {map[string]any{"email": nil}, "its claim email does not name one user"},
		"an address not verified":   {map[string]any{"email_verified": false}, "has not verified your e-mail address"},
		"an address not verified 2": {map[string]any{"email_verified": "false"}, "has not verified your e-mail address"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			claims := map[string]any{"email": "ann@example.com"}
			maps.Copy(claims, test.claims)
			d.issuer.Say(claims)
			d.get("/login")
			d.expect(codes.PermissionDenied, test.text, "")
		})
	}
}

// TestExpiryHasLeeway has an ID token that has expired a moment ago.
func TestExpiryHasLeeway(t *testing.T) {
	d := newDesk(t)
	d.issuer.Say(map[string]any{"email": "ann@example.com", "exp": time.Now().Add(-time.Second).Unix()})
	d.get("/login")
	d.expect(codes.OK, "", "ann@example.com")
}

// TestKeys has an issuer that signs with a new key, which is fetched, and with one that it does not show.
func TestKeys(t *testing.T) {
	d := newDesk(t)
	d.get("/login")
	d.expect(codes.OK, "", "ann@example.com")
	d.issuer.Rotate()
	d.issuer.Say(map[string]any{"email": "bob@example.com"})
	d.get("/login")
	d.expect(codes.OK, "", "bob@example.com")
	d.issuer.Forge()
	d.issuer.Say(map[string]any{"email": "eve@example.com"})
	d.get("/login")
	d.expect(codes.PermissionDenied, "verify signature", "bob@example.com")
}

// TestOthersLogIns has log-ins that somebody else began, or that were ended before.
func TestOthersLogIns(t *testing.T) {
	d := newDesk(t)
	back := d.callback()
	mine := d.browser
	d.browser = d.newBrowser()
	d.get(back) // as of a link that somebody was sent
	d.expect(codes.FailedPrecondition, "another browser", "")
	other := d.callback()
	d.get(back) // in a browser that has begun another
	d.expect(codes.FailedPrecondition, "another browser", "")
	state := func(uri string) string {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("state")
	}
	d.get(strings.Replace(back, url.QueryEscape(state(back)), url.QueryEscape(state(other)), 1)) // another's code, with the own state
	d.expect(codes.FailedPrecondition, "used or too old", "")
	d.browser = mine
	second := d.callback()
	d.get(strings.Replace(second, "&iss=", "&iss=https://other.example.com", 1))
	d.expect(codes.FailedPrecondition, "another browser", "")
	d.get(strings.Replace(second, "state=", "state=A", 1))
	d.expect(codes.FailedPrecondition, "another browser", "")
	late, err := d.logins.keys.seal("log-in "+d.cookies()[browserCookie], pending{d.issuer.URL(), "/", time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?state=" + late} {
		d.get("/" + Callback + query)
		d.expect(codes.FailedPrecondition, "another browser", "")
	}
	d.get(second)
	d.expect(codes.OK, "", "ann@example.com")
	d.get("/logout")
	d.get(second) // the code is used
	d.expect(codes.FailedPrecondition, "used or too old", "")
	third := d.callback()
	d.options.KeyFile = filepath.Join(t.TempDir(), "key")
	d.open() // with other keys
	d.get(third)
	d.expect(codes.FailedPrecondition, "another browser", "")
}

// TestTamperedCookies has cookies that were changed, swapped, or made for other rules.
func TestTamperedCookies(t *testing.T) {
	d := newDesk(t)
	d.get("/login")
	good := d.cookies()
	session := good[sessionCookie]
	for i := range len(session) {
		changed := []byte(session)
		if changed[i]++; i == len(session)-1 { // it has bits to spare
			changed[i] = '!'
		}
		d.setCookie(sessionCookie, string(changed))
		if i%16 == 0 || i == len(session)-1 {
			d.expect(codes.OK, "", "")
		}
	}
	for _, value := range []string{"", "x", session[:20], good[browserCookie], d.issuer.Asked()[0].Get("state")} {
		d.setCookie(sessionCookie, value)
		d.expect(codes.OK, "", "")
	}
	d.setCookie(sessionCookie, session)
	d.expect(codes.OK, "", "ann@example.com")
	d.options.Rules = d.options.Rules[:1]
	d.open()
	d.expect(codes.OK, "", "")
}

// TestSessionsEnd has a session whose time is over although the browser still sends it.
func TestSessionsEnd(t *testing.T) {
	d := newDesk(t)
	d.options.Settings.Session = time.Second
	d.open()
	d.get("/login")
	kept := d.cookies()[sessionCookie]
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: kept})
	var s session
	if err := d.logins.keys.open(d.logins.purpose, kept, &s); err != nil || s.Until.After(time.Now().Add(time.Second)) {
		t.Fatalf("%+v, %v", s, err)
	}
	s.Until = time.Now()
	sealed, err := d.logins.keys.seal(d.logins.purpose, s)
	if err != nil {
		t.Fatal(err)
	}
	d.setCookie(sessionCookie, sealed)
	d.expect(codes.OK, "", "")
}

// TestKeyFiles has schedulers with the same keys, and a key that is replaced.
func TestKeyFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(lines ...string) {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, after := strings.Repeat("a", 32), strings.Repeat("b", 32)
	d := newDesk(t)
	if info, err := os.Stat(d.options.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key that was made: %v, %v", info, err)
	}
	d.options.Settings.KeyFile = file
	if _, err := New(d.options); err == nil {
		t.Error("a key file that is named is made")
	}
	for _, bad := range []string{"", "\n", before[1:]} {
		write(bad)
		if _, err := New(d.options); err == nil || !strings.Contains(err.Error(), "openssl rand -hex 32") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	write(before)
	d.open()
	d.get("/login")
	write(after, before)
	d.open() // another scheduler
	d.expect(codes.OK, "", "ann@example.com")
	d.get("/login")
	write(after)
	d.open()
	d.expect(codes.OK, "", "ann@example.com")
	write(before)
	d.open()
	d.expect(codes.OK, "", "")
}

// TestIssuerAway has an issuer that cannot be reached at the start, and later can.
func TestIssuerAway(t *testing.T) {
	d := newDesk(t)
	d.issuer.Leave(true)
	d.get("/login")
	d.expect(codes.Unavailable, "cannot be reached, so nobody can log in with it now", "")
	d.issuer.Leave(false)
	d.get("/login") // it is left alone for a while
	d.expect(codes.Unavailable, "cannot be reached", "")
	d.logins.issuers[0].tried = time.Now().Add(-pause)
	d.get("/login")
	d.expect(codes.OK, "", "ann@example.com")
	back := d.callback()
	d.issuer.Leave(true)
	d.get(back)
	d.expect(codes.Unavailable, "did not log you in", "ann@example.com")
}

// TestRefusals has an issuer that does not log somebody in, and one that does not know the pages.
func TestRefusals(t *testing.T) {
	d := newDesk(t)
	d.issuer.Refuse("access_denied")
	d.get("/login?to=/workers")
	d.expect(codes.PermissionDenied, "access_denied", "")
	if d.to != "/workers" {
		t.Errorf("tried again for %q", d.to)
	}
	d.issuer.Refuse("")
	d.get("/login?with=nobody")
	d.expect(codes.NotFound, "nobody", "")
	d.options.Settings.Issuers[0].SecretFile = ""
	d.open()
	d.get("/login")
	d.expect(codes.Unavailable, "does not know these pages", "")
	many := []string{}
	for range 400 {
		many = append(many, "dev"+strings.Repeat("x", len(many)%30)+time.Duration(len(many)).String())
	}
	d.issuer.Say(map[string]any{"email": "ann@example.com", "groups": many})
	d.options.Settings.Issuers[0].SecretFile = d.issuer.SecretFile()
	d.open()
	d.get("/login")
	d.expect(codes.FailedPrecondition, "a browser cannot keep this session: rules below access ask for 400 groups", "")
}

// TestLocal has addresses to return to that lead elsewhere.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/": "/", "/operations/x?a=b&c=%2F": "/operations/x?a=b&c=%2F", "/builds/a%20b": "/builds/a%20b", "/x#y": "/x",
		"": "/", "x": "/", "https://evil.example.com/": "/", "//evil.example.com/": "/", "///evil.example.com": "/", `/\evil.example.com`: "/",
		`\\evil.example.com`: "/", "/\t/evil.example.com": "/", "/%2Fevil.example.com": "/", "/%5Cevil.example.com": "/", "/\n/evil": "/", "javascript:alert(1)": "/",
		"http:/evil": "/", "/login": "/", "/login/callback?code=x": "/", "/logout": "/", "/" + strings.Repeat("x", maxReturn): "/", " //evil": "/",
		"https:evil.example.com": "/", "//user@evil.example.com": "/",
	} {
		if got := Local(to); got != want {
			t.Errorf("%q: %q, want %q", to, got, want)
		}
	}
}

// TestSettings has settings that make no sense.
func TestSettings(t *testing.T) {
	good := Issuer{Name: "https://sso.example.com/x", ClientID: "a"}
	for text, s := range map[string]Settings{
		`two issuers are called "sso.example.com"`: {Issuers: []Issuer{good, {Name: "https://sso.example.com/y", ClientID: "a"}}},
		`two issuers are called "https://sso`:      {Issuers: []Issuer{good, {Name: good.Name, Title: "other", ClientID: "a"}}},
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	for text, i := range map[string]Issuer{
		"client_id is empty": {Name: good.Name}, "not an https:// address": {Name: "http://sso.example.com", ClientID: "a"},
		"leeway is negative":       {Name: good.Name, ClientID: "a", Leeway: -1},
		"leeway is more than 5m0s": {Name: good.Name, ClientID: "a", Leeway: maxLeeway + 1},
	} {
		if err := i.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	most := good
	most.Leeway = maxLeeway
	if err := most.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{Rules: rules(), Settings: Settings{Issuers: []Issuer{good}}}); err == nil || !strings.Contains(err.Error(), "--page-url") {
		t.Errorf("without an address: %v", err)
	}
	i := good
	i.Scopes = []string{"groups", "openid"}
	if got := i.scopes(); !slices.Equal(got, []string{"openid", "groups"}) {
		t.Errorf("scopes %q", got)
	}
}
