package web

import (
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
)

// A loginPages serves the pages for logging in and out.
type loginPages struct{ *renderer }

// refused answers a viewer without the right to see a page: it redirects to the log-in, or shows
// the reason on a page.
func (l *loginPages) refused(w http.ResponseWriter, r *http.Request, why *status.Status) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		auth.Tell(w, why)
		return
	}
	if why.Code() != codes.Unauthenticated || l.login == nil {
		l.fail(w, r, "", why.Err())
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		l.sessionOver(w, r)
		return
	}
	http.Redirect(w, r, logInAt(r.URL.RequestURI()), http.StatusSeeOther)
}

// sessionOver answers a form whose session has ended. It does not redirect: the form-action policy
// of the pages also applies to redirects of forms, so browsers would not follow the redirect to the
// issuer.
func (l *loginPages) sessionOver(w http.ResponseWriter, r *http.Request) {
	page := "/"
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		page = from.RequestURI()
	}
	v := l.view(r, "login", failure{
		Title: "You are no longer logged in", Text: "Nothing was changed. Log in and try again.", Again: logInAt(page),
	})
	v.Viewer.LogIn = ""
	l.render(w, http.StatusUnauthorized, "error", v)
}

// A provider is an OpenID provider that users can log in with.
type provider struct{ Title, Path string }

// A loginView is the data of the page for logging in and out.
type loginView struct {
	Choices []provider
	Name    string // of the user
	Out     bool   // the user has just logged out, or is about to
}

// logIn redirects to the chosen issuer, or to the only one.
func (l *loginPages) logIn(w http.ResponseWriter, r *http.Request) {
	with, to := r.FormValue("with"), login.Local(r.FormValue("to"))
	titles := l.login.Titles()
	if with == "" && len(titles) > 1 {
		var v loginView
		for _, t := range titles {
			v.Choices = append(v.Choices, provider{t, "/login?" + url.Values{"with": {t}, "to": {to}}.Encode()})
		}
		shown := l.view(r, "login", v)
		shown.Viewer.LogIn = ""
		l.render(w, http.StatusOK, "login", shown)
		return
	}
	if err := l.login.Begin(w, r, with, to); err != nil {
		l.notLoggedIn(w, r, to, err)
	}
}

// loggedIn serves the path to which issuers redirect.
func (l *loginPages) loggedIn(w http.ResponseWriter, r *http.Request) {
	to, err := l.login.Finish(w, r)
	if err != nil {
		l.notLoggedIn(w, r, to, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// notLoggedIn shows why the user has no session, and offers another attempt. It sends no referrer,
// because the address of the page contains data of the issuer.
func (l *loginPages) notLoggedIn(w http.ResponseWriter, r *http.Request, to string, err error) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	st := status.Convert(err)
	code := http.StatusForbidden
	if st.Code() == codes.Unavailable || st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded {
		code = http.StatusServiceUnavailable
	}
	v := l.view(r, "login", failure{Title: "You are not logged in", Text: st.Message(), Again: logInAt(to)})
	v.Viewer.LogIn = ""
	l.render(w, code, "error", v)
}

// logOut ends a session.
func (l *loginPages) logOut(w http.ResponseWriter, r *http.Request) {
	l.login.End(w, r)
	http.Redirect(w, r, "/logout", http.StatusSeeOther)
}

// loggedOut shows the page after logging out.
func (l *loginPages) loggedOut(w http.ResponseWriter, r *http.Request) {
	v := l.view(r, "login", nil)
	v.Data = loginView{Out: true, Name: v.Viewer.Name}
	v.Viewer.LogIn = ""
	l.render(w, http.StatusOK, "login", v)
}
