package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sessions knows the sessions of users who have logged in to pages.
type Sessions interface {
	// Of returns the user whose browser sends r, and the end of the session; nil: there is none.
	Of(r *http.Request) (who *Identity, until time.Time)
}

// Refused answers a request for a page that the caller may not see. The status has the reason. The
// context of the request is the context of a page.
type Refused func(w http.ResponseWriter, r *http.Request, why *status.Status)

// Answering returns an equal Guard that lets refused answer the requests that it refuses.
func (g *Guard) Answering(refused Refused) *Guard {
	answering := *g
	answering.refused = refused
	return &answering
}

// HTTP passes requests of callers with a right for all instance names to next.
func (g *Guard) HTTP(right Right, next http.Handler) http.Handler {
	return g.pages(need{right: right, scope: all}, next)
}

// OwnHTTP passes requests of callers with a right for any instance name, or that may observe, to
// next. It is for pages that ask Owns or Allowed what each caller may see.
func (g *Guard) OwnHTTP(right Right, next http.Handler) http.Handler {
	return g.pages(need{right: right, scope: some, or: Observe}, next)
}

// OpenHTTP passes all requests to next, with an identity if there is one. Even here, forms with the
// cookie of a session must come from one of our pages.
func (g *Guard) OpenHTTP(next http.Handler) http.Handler { return g.pages(need{free: true}, next) }

// pages lets callers that satisfy n through to next.
func (g *Guard) pages(n need, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, until, err := g.viewer(r)
		if err == nil && !n.free && !(g.rules.knows(who) && g.rules.satisfy(n, who, "")) {
			err = g.refusePage(who, r.Method+" "+r.URL.Path, n.String())
		}
		ctx := context.WithValue(newContext(r.Context(), who), callKey{}, &call{guard: g, need: n, who: who})
		if !until.IsZero() { // pages that move end with the session
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		r = r.WithContext(ctx)
		if err != nil && (!n.free || errors.Is(err, errOrigin)) {
			g.answer(w, r, status.Convert(err))
			return
		}
		if n.right == Administer {
			g.log.Info("an administrator calls", zap.Stringer("user", who), zap.String("method", r.Method+" "+r.URL.Path))
		}
		next.ServeHTTP(w, r)
	})
}

// viewer returns the caller of a page, and until when a session is valid. A token comes first, then
// a session, then a certificate.
func (g *Guard) viewer(r *http.Request) (*Identity, time.Time, error) {
	headers := r.Header.Values("Authorization")
	if _, token := g.tokenOf(headers); g.sessions != nil && !token {
		if who, until := g.sessions.Of(r); who != nil {
			return who, until, checkOrigin(r)
		}
	}
	who, err := g.identify(r.Context(), r.TLS, headers)
	return who, time.Time{}, err
}

// errOrigin refuses a form with the cookie of a session from another site, or from a program that
// is no browser.
var errOrigin = status.Error(codes.PermissionDenied, "this form was not sent from one of these pages, so nothing was changed")

// checkOrigin returns an error for a request that changes something and that does not show that it
// is from one of our pages. The cookie of a session does not show that.
func checkOrigin(r *http.Request) error {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
		return nil
	}
	says := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
	if !says || http.NewCrossOriginProtection().Check(r) != nil {
		return errOrigin
	}
	return nil
}

// refusePage is refuse for a page, for which one can log in.
func (g *Guard) refusePage(who *Identity, what, right string) error {
	if who == nil && g.ways == "" && g.sessions != nil {
		return status.Errorf(codes.Unauthenticated, "%s may not %s: log in to the pages", who, what)
	}
	return g.refuse(who, what, right)
}

// answer refuses a request.
func (g *Guard) answer(w http.ResponseWriter, r *http.Request, why *status.Status) {
	if why.Code() == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if g.refused != nil {
		g.refused(w, r, why)
		return
	}
	Tell(w, why)
}

// Tell answers a refused request of a program or of a page's script.
func Tell(w http.ResponseWriter, why *status.Status) {
	code := http.StatusServiceUnavailable
	switch why.Code() {
	case codes.Unauthenticated:
		code = http.StatusUnauthorized
	case codes.PermissionDenied:
		code = http.StatusForbidden
	}
	http.Error(w, why.Message(), code)
}
