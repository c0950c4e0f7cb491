package farm

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth/login/logintest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/freeport"
)

// A loginFarm is a guardedFarm that people log in to.
type loginFarm struct {
	*guardedFarm
	issuer *logintest.Issuer
}

func newLoginFarm(t *testing.T) *loginFarm {
	t.Helper()
	issuer := logintest.New(t)
	return &loginFarm{guard(t, &Scheduler{}, `
login:
  issuers:
  - {issuer: "`+issuer.URL()+`", client_id: `+logintest.ClientID+`, client_secret_file: "`+issuer.SecretFile()+`"}
access:
  - {users: [user], may: [execute, read, write, observe]}
  - {groups: [devs], instances: [team], may: [execute, read]}
  - {users: ["*@ops.example.com"], may: [observe]}
  - {users: [root@ops.example.com], may: [administer]}
`), issuer}
}

// A person has a browser, without a certificate, and an account.
type person struct {
	*loginFarm
	browser *http.Client
	claims  map[string]any
}

func (f *loginFarm) person(claims map[string]any) *person {
	f.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: f.tls(&dial.Client{CA: f.callers["nobody"].CA})}
	f.Cleanup(transport.CloseIdleConnections)
	return &person{f, &http.Client{Jar: jar, Transport: transport}, claims}
}

// ask sends what a browser sends, and follows where that leads.
func (p *person) ask(method, path string, headers map[string]string) (code int, end, text string) {
	p.Helper()
	p.issuer.Say(p.claims)
	req, err := http.NewRequestWithContext(p.Context(), method, "https://"+p.pages+path, strings.NewReader(url.Values{"pattern": {"host=x"}}.Encode()))
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,*/*")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := p.browser.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL.RequestURI(), string(b)
}

// see requests a page and checks the final address and the content. Parts that begin with "!" must
// be absent.
func (p *person) see(path string, code int, end string, parts ...string) {
	p.Helper()
	p.check(http.MethodGet, path, nil, code, end, parts)
}

func (p *person) check(method, path string, headers map[string]string, code int, end string, parts []string) {
	p.Helper()
	gotCode, gotEnd, text := p.ask(method, path, headers)
	if gotCode != code || gotEnd != end {
		p.Errorf("%s %s: %d at %s, want %d at %s: %s", method, path, gotCode, gotEnd, code, end, text)
	}
	for _, part := range parts {
		if part, not := strings.CutPrefix(part, "!"); strings.Contains(text, part) == not {
			p.Errorf("%s %s: the page has %q: %t\n%s", method, path, part, not, text)
		}
	}
}

// TestPeopleLogIn has users without certificates request pages. They log in, return to the
// requested page, and may see and do what the rules say.
func TestPeopleLogIn(t *testing.T) {
	f := newLoginFarm(t)
	own, others := queued(t, f.dial("user"), "team"), queued(t, f.dial("user"), "main")

	dev := f.person(map[string]any{"email": "dev@example.com", "groups": []string{"devs"}})
	dev.see("/"+own, 200, "/"+own, "dev@example.com", "Log out", "<dd>team</dd>", `!href="/workers"`, "!Cancel this operation", "!Log in")
	dev.see("/"+others, 404, "/"+others)
	dev.see("/", 200, "/history", "dev@example.com")
	dev.see("/workers", 403, "/workers", "dev@example.com", "no rule below access", "Log out")

	ops := f.person(map[string]any{"email": "ann@ops.example.com"})
	ops.see("/workers?pattern=host%3Dx", 200, "/workers?pattern=host%3Dx", "ann@ops.example.com", `href="/quotas"`)
	ops.see("/"+others, 200, "/"+others, "!Cancel this operation")
	ops.see("/metrics", 200, "/metrics", "go_goroutines")
	ops.see("/debug/pprof/", 403, "/debug/pprof/")
	here := map[string]string{"Origin": "https://" + f.pages}
	ops.check(http.MethodPost, "/workers/drain", here, 403, "/workers/drain", []string{"ann@ops.example.com"})

	root := f.person(map[string]any{"email": "root@ops.example.com"})
	root.see("/"+own, 200, "/"+own, "Cancel this operation")
	for _, headers := range []map[string]string{
		nil, {"Origin": "https://evil.example.com"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site", "Origin": "https://" + f.pages},
	} {
		root.check(http.MethodPost, "/workers/drain", headers, 403, "/workers/drain", []string{"was not sent from one of these pages"})
	}
	root.see("/workers", 200, "/workers", "!host=x")
	root.check(http.MethodPost, "/workers/drain", here, 200, "/workers", []string{"host=x"})
	root.check(http.MethodPost, "/"+own+"/cancel", here, 200, "/"+own, []string{"cancelled by an operator"})

	nobody := f.person(map[string]any{"email": "eve@example.com"})
	nobody.see("/"+others, 403, "/"+others, "eve@example.com", "no rule below access")
}

// TestLogOut: a browser whose session has ended must log in for the next page; other programs get
// an error.
func TestLogOut(t *testing.T) {
	f := newLoginFarm(t)
	ops := f.person(map[string]any{"email": "ann@ops.example.com"})
	ops.see("/quotas", 200, "/quotas", "ann@ops.example.com")
	u, err := url.Parse("https://" + f.pages)
	if err != nil {
		t.Fatal(err)
	}
	kept := ops.browser.Jar.Cookies(u)
	for _, c := range kept {
		if !strings.HasPrefix(c.Name, "__Host-") {
			t.Errorf("the cookie %s can be set by others", c.Name)
		}
	}
	here := map[string]string{"Origin": "https://" + f.pages, "Referer": "https://" + f.pages + "/quotas"}
	ops.check(http.MethodPost, "/logout", map[string]string{"Origin": "https://evil.example.com"}, 403, "/logout", nil)
	ops.see("/logout", 200, "/logout", "You are logged in as ann@ops.example.com")
	ops.check(http.MethodPost, "/logout", here, 200, "/logout", []string{"You are logged out", "!ann@ops"})
	ops.browser.Jar.SetCookies(u, kept)
	ops.see("/logout", 200, "/logout", "You are logged out")
	ops.check(http.MethodPost, "/workers/drain", here, 401, "/workers/drain",
		[]string{"You are no longer logged in", "Nothing was changed", `href="/login?to=%2Fquotas"`})
	if code, _, text := ops.ask(http.MethodGet, "/quotas", map[string]string{"Accept": "text/event-stream"}); code != 401 {
		t.Errorf("a script: %d, %s", code, text)
	}
}

// TestSessionsAreForPages: RPCs do not accept session cookies.
func TestSessionsAreForPages(t *testing.T) {
	f := newLoginFarm(t)
	ops := f.person(map[string]any{"email": "ann@ops.example.com"})
	ops.see("/quotas", 200, "/quotas")
	u, err := url.Parse("https://" + f.pages)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, c := range ops.browser.Jar.Cookies(u) {
		ctx = metadata.AppendToOutgoingContext(ctx, "cookie", c.String())
	}
	_, err = longrunningpb.NewOperationsClient(f.dial("nobody")).ListOperations(ctx, &longrunningpb.ListOperationsRequest{})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with a session: %v", err)
	}
}

// TestLoginAtTheStart has settings that the scheduler does not start with, and an issuer that is
// away, with which it does.
func TestLoginAtTheStart(t *testing.T) {
	issuer := "login:\n  issuers: [{issuer: 'https://127.0.0.1:1', client_id: x}]\n"
	access := "access: [{users: [ann], may: [observe]}]\n"
	for text, s := range map[string]*Scheduler{
		"no rules below access":        {HTTP: "127.0.0.1:8981", ConfigFile: writeConfig(t, issuer)},
		"set --http":                   {ConfigFile: writeConfig(t, issuer+access)},
		"--page-url to the https:// a": {HTTP: "127.0.0.1:8981", PageURL: "http://farm.example.com", ConfigFile: writeConfig(t, issuer+access)},
		"--page-url (it is":            {HTTP: "127.0.0.1:0", ConfigFile: writeConfig(t, issuer+access)},
	} {
		s.Data = t.TempDir()
		if _, err := s.check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	s := &Scheduler{HTTP: freeport.Address(t), ConfigFile: writeConfig(t, issuer+access)}
	startScheduler(t, s)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTP+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "127.0.0.1:1 cannot be reached, so nobody can log in") {
		t.Errorf("%s, %s, %v", resp.Status, b, err)
	}
}
