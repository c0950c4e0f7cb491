package login

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login/logintest"
)

// TestLogIn logs a user in, restarts, and logs the user out. The cookie must be useless afterwards.
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

// TestRefusedTokens has an issuer whose ID tokens are not to be taken.
func TestRefusedTokens(t *testing.T) {
	for name, test := range map[string]struct {
		claims map[string]any
		text   string
	}{
		"nonce of another log-in":   {map[string]any{"nonce": "x"}, "of another log-in"},
		"no nonce":                  {map[string]any{"nonce": nil}, "of another log-in"},
		"audience":                  {map[string]any{"aud": "mail"}, "audience"},
		"made for another client":   {map[string]any{"aud": []string{"mail", logintest.ClientID}, "azp": "mail"}, "made for another client"},
		"issuer":                    {map[string]any{"iss": "https://other.example.com"}, "different provider"},
		"expired":                   {map[string]any{"exp": time.Now().Add(-auth.DefaultLeeway - time.Minute).Unix()}, "expired"},
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

// TestKeys has an issuer that signs with a new key, which is fetched, and with one that it does not
// show.
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

// TestRefusals has an issuer that refuses a log-in, and one that does not know the pages.
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
