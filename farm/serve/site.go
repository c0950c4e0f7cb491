package serve

import (
	"net"
	"net/http"

	"github.com/forerunner-build/forerunner/auth"
)

// Site returns pages as they are for those who may look, and forms for those who may administer.
func (p Protection) Site(pages http.Handler) http.Handler {
	look, change := p.pages(auth.Observe, pages), p.pages(auth.Administer, pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			look.ServeHTTP(w, r)
			return
		}
		change.ServeHTTP(w, r)
	})
}

// localOnly refuses what a browser was made to ask by a page from elsewhere, whose name was
// let point to this machine meanwhile. It is for ports on loopback.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "this port is for this machine: ask it by its IP address or as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
