package serve

import (
	"net"
	"net/http"
	"strings"
)

// localOnly refuses what a browser was made to ask by a page from elsewhere, whose name was
// let point to this machine meanwhile. It is for ports on loopback.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "this port is for this machine: ask it by its IP address or as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
