package login

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestLeeway has an ID token that is good from the moment on when it was made, and as much leeway
// as there may be.
func TestLeeway(t *testing.T) {
	d := newDesk(t)
	d.options.Settings.Issuers[0].Leeway = maxLeeway
	d.open()
	d.issuer.Say(map[string]any{"email": "ann@example.com", "nbf": time.Now().Unix()})
	d.get("/login")
	d.expect(codes.OK, "", "ann@example.com")
}

// TestAnswersWithoutName: if an issuer announces that it names itself in answers, answers without
// the name have no effect, including error answers. Answers of other issuers need no name.
func TestAnswersWithoutName(t *testing.T) {
	for _, signs := range []bool{true, false} {
		d := newDesk(t)
		d.issuer.Sign(signs)
		unnamed := func() string {
			u, err := url.Parse(d.callback())
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			if q.Get("iss") != d.issuer.URL() {
				t.Errorf("the issuer names %q", q.Get("iss"))
			}
			q.Del("iss")
			u.RawQuery = q.Encode()
			return u.String()
		}
		d.issuer.Refuse("access_denied")
		d.get(unnamed())
		if signs {
			d.expect(codes.PermissionDenied, "this one has none", "")
		} else {
			d.expect(codes.PermissionDenied, "access_denied", "")
		}
		d.issuer.Refuse("")
		d.get(unnamed())
		if signs {
			d.expect(codes.PermissionDenied, "this one has none", "")
			d.get("/login")
		}
		d.expect(codes.OK, "", "ann@example.com")
	}
}

// TestKeysHang has an issuer that does not answer requests for its keys. The log-in must fail, and
// the next one must request the keys again.
func TestKeysHang(t *testing.T) {
	d := newDesk(t)
	synctest.Test(t, func(t *testing.T) {
		d.open()
		d.logins.issuers[0].client.Transport = d.issuer
		d.issuer.Hang(true)
		if err := d.direct(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not answer: try again in a moment") {
			t.Errorf("without keys: %v", err)
		}
		synctest.Wait()
		d.issuer.Hang(false)
		if err := d.direct(); err != nil {
			t.Errorf("with keys again: %v", err)
		}
	})
}

// direct logs in without a network.
func (d *desk) direct() error {
	d.Helper()
	w := httptest.NewRecorder()
	if err := d.logins.Begin(w, httptest.NewRequest(http.MethodGet, "/login", nil), "", "/"); err != nil {
		return err
	}
	asked := httptest.NewRequest(http.MethodGet, w.Header().Get("Location"), nil)
	resp, err := d.issuer.RoundTrip(asked)
	if err != nil {
		d.Fatal(err)
	}
	_ = resp.Body.Close()
	back := httptest.NewRequest(http.MethodGet, resp.Header.Get("Location"), nil)
	for _, c := range w.Result().Cookies() {
		back.AddCookie(c)
	}
	_, err = d.logins.Finish(httptest.NewRecorder(), back)
	return err
}
