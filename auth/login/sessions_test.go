package login

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// TestCookies have no script and no other site use them.
func TestCookies(t *testing.T) {
	for pages, want := range map[string]string{
		"https://farm.example.com/": "__Host-x=v; Path=/; Max-Age=59; HttpOnly; Secure; SameSite=Lax",
		"http://127.0.0.1:8981/":    "x=v; Path=/; Max-Age=59; HttpOnly; SameSite=Lax",
	} {
		l, err := New(Options{Rules: rules(), Pages: pages, KeyFile: filepath.Join(t.TempDir(), "key")})
		if err == nil {
			err = l.Open()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := l.cookie("x", "v", time.Now().Add(time.Minute)).String(); got != want {
			t.Errorf("%s: %s, want %s", pages, got, want)
		}
	}
}

// TestOthersLogIns has log-ins that another browser began, or that have already ended.
func TestOthersLogIns(t *testing.T) {
	d := newDesk(t)
	back := d.callback()
	mine := d.browser
	d.browser = d.newBrowser()
	d.get(back) // like a link that an attacker sent
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
	d.expect(codes.FailedPrecondition, "used or expired", "")
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
	d.expect(codes.FailedPrecondition, "used or expired", "")
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
