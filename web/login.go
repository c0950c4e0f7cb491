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

// A viewer is who looks at a page.
type viewer struct {
	Name     string // empty: not known
	LoggedIn bool   // with a session, which he can end
	LogIn    string // where he can log in; empty: he has, or nobody can
	Observes bool   // all of the farm
}

// view returns what the template of a page sees.
func (s *Site) view(r *http.Request, page string, data any) view {
	ctx := r.Context()
	v := viewer{Observes: auth.Allowed(ctx, auth.Observe, "")}
	who := auth.FromContext(ctx)
	if who != nil {
		v.Name = who.User
	}
	if s.options.Login != nil {
		session, _ := s.options.Login.Of(r)
		v.LoggedIn = session != nil
		if who == nil {
			v.LogIn = logInAt(r.URL.RequestURI())
		}
	}
	return view{Page: page, ReadOnly: s.options.ReadOnly || !auth.Allowed(ctx, auth.Administer, ""), Viewer: v, Data: data}
}

// logInAt is where one logs in to see a page.
func logInAt(page string) string { return "/login?" + url.Values{"to": {login.Local(page)}}.Encode() }

// Refused implements auth.Refused: people are led to log in, or told on a page why they do not see what they asked for.
func (s *Site) Refused(w http.ResponseWriter, r *http.Request, why *status.Status) {
	setHeaders(w.Header())
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		auth.Tell(w, why)
		return
	}
	if why.Code() != codes.Unauthenticated || s.options.Login == nil {
		s.fail(w, r, "", why.Err())
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.sessionOver(w, r)
		return
	}
	http.Redirect(w, r, logInAt(r.URL.RequestURI()), http.StatusSeeOther)
}

// sessionOver answers a form of a page whose session is over. It redirects nowhere: form-action of the pages' policy holds for
// where a form is redirected to, too, and browsers would not go on to the issuer.
func (s *Site) sessionOver(w http.ResponseWriter, r *http.Request) {
	page := "/"
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		page = from.RequestURI()
	}
	v := s.view(r, "login", failure{
		Title: "You are not logged in any more", Text: "Nothing was changed: log in, and try again.", Again: logInAt(page),
	})
	v.Viewer.LogIn = ""
	s.render(w, http.StatusUnauthorized, "error", v)
}

// A provider is one with which one can log in.
type provider struct{ Title, Path string }

// A loginView is the page of those who log in or out.
type loginView struct {
	Choices []provider
	Name    string // of who has logged in
	Out     bool   // he has just logged out, or wants to
}

// logIn leads to the issuer that was chosen, or to the only one.
func (s *Site) logIn(w http.ResponseWriter, r *http.Request) {
	with, to := r.FormValue("with"), login.Local(r.FormValue("to"))
	titles := s.options.Login.Titles()
	if with == "" && len(titles) > 1 {
		var v loginView
		for _, t := range titles {
			v.Choices = append(v.Choices, provider{t, "/login?" + url.Values{"with": {t}, "to": {to}}.Encode()})
		}
		shown := s.view(r, "login", v)
		shown.Viewer.LogIn = ""
		s.render(w, http.StatusOK, "login", shown)
		return
	}
	if err := s.options.Login.Begin(w, r, with, to); err != nil {
		s.notLoggedIn(w, r, to, err)
	}
}

// loggedIn is where issuers lead back to.
func (s *Site) loggedIn(w http.ResponseWriter, r *http.Request) {
	to, err := s.options.Login.Finish(w, r)
	if err != nil {
		s.notLoggedIn(w, r, to, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// notLoggedIn says why somebody has no session, and has him try again. The address of the page, which has what an issuer
// said, is for nobody else.
func (s *Site) notLoggedIn(w http.ResponseWriter, r *http.Request, to string, err error) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	st := status.Convert(err)
	code := http.StatusForbidden
	if st.Code() == codes.Unavailable || st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded {
		code = http.StatusServiceUnavailable
	}
	v := s.view(r, "login", failure{Title: "You are not logged in", Text: st.Message(), Again: logInAt(to)})
	v.Viewer.LogIn = ""
	s.render(w, code, "error", v)
}

// logOut ends a session.
func (s *Site) logOut(w http.ResponseWriter, r *http.Request) {
	s.options.Login.End(w, r)
	http.Redirect(w, r, "/logout", http.StatusSeeOther)
}

// loggedOut says that the session is over, if it is.
func (s *Site) loggedOut(w http.ResponseWriter, r *http.Request) {
	v := s.view(r, "login", nil)
	v.Data = loginView{Out: true, Name: v.Viewer.Name}
	v.Viewer.LogIn = ""
	s.render(w, http.StatusOK, "login", v)
}
