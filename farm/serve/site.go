package serve

import (
	"net"
	"net/http"
	"strings"
)

// localOnly rejects requests that a page from elsewhere makes a browser send, after its name was
// changed to point to this machine. It is for ports on loopback.
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
