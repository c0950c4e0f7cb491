package login

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/bounded"
)

const (
	// maxCookie is the size of a cookie that browsers accept, with its name and attributes.
	maxCookie = 3800
	// endedBytes limits the memory of ended sessions; each counts endedEach.
	endedBytes, endedEach = 1 << 20, 200
)

// A session is the content of its cookie.
type session struct {
	ID    string        `json:"i"`
	Who   auth.Passport `json:"w"`
	Until time.Time     `json:"e"`
}

// ended are sessions that were ended before their time.
type ended struct {
	mu  sync.Mutex
	ids *bounded.Cache[string, struct{}] // guarded by mu
}

func (e *ended) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids.Put(id, struct{}{}, endedEach)
}

func (e *ended) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.ids.Get(id)
	return ok
}

// cookie returns a cookie for all pages, which scripts cannot see and other sites cannot send along
// with a form. A name that begins with __Host- is for this host alone: no other one of its domain
// can set it.
func (l *Logins) cookie(name, value string, until time.Time) *http.Cookie {
	c := &http.Cookie{
		Name: l.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: l.secure, SameSite: http.SameSiteLaxMode,
		MaxAge: int(time.Until(until) / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

func (l *Logins) cookieName(name string) string {
	if l.secure {
		return "__Host-" + name
	}
	return name
}

// begin answers with a session of a user.
func (l *Logins) begin(w http.ResponseWriter, who *auth.Identity) error {
	s := session{ID: rand.Text(), Who: who.Passport(l.options.Rules), Until: time.Now().Add(l.life).UTC().Truncate(time.Second)}
	sealed, err := l.keys.seal(l.purpose, s)
	if err != nil {
		return err
	}
	c := l.cookie(sessionCookie, sealed, s.Until)
	if len(c.String()) > maxCookie {
		return status.Errorf(codes.FailedPrecondition,
			"a browser cannot keep this session: rules below access ask for %d groups of %s; let them name fewer", len(s.Who.Groups), who.User)
	}
	http.SetCookie(w, c)
	return nil
}

// session returns the session of a request, if it is valid.
func (l *Logins) session(r *http.Request) (s session, ok bool) {
	c, err := r.Cookie(l.cookieName(sessionCookie))
	if err != nil || l.keys.open(l.purpose, c.Value, &s) != nil || !time.Now().Before(s.Until) || l.ended.has(s.ID) {
		return session{}, false
	}
	return s, true
}

// Of implements auth.Sessions.
func (l *Logins) Of(r *http.Request) (who *auth.Identity, until time.Time) {
	s, ok := l.session(r)
	if !ok {
		return nil, time.Time{}
	}
	return s.Who.Identity(), s.Until
}

// End ends the session of a request, if it has one.
func (l *Logins) End(w http.ResponseWriter, r *http.Request) {
	if s, ok := l.session(r); ok {
		l.ended.add(s.ID)
	}
	http.SetCookie(w, l.cookie(sessionCookie, "", time.Time{}))
}
