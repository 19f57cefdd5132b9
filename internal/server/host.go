package server

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// OnlyHosts answers requests that name one of the hosts, with any port, and refuses others with a plain 421. A page
// whose host name leads to this machine, by what its own name server says, names that host: the browser takes it for
// the page's own, and so lets the page read the answers.
func OnlyHosts(next http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !named(hosts, r.Host) {
			http.Error(w, errHost.detail, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// named reports whether a Host header names one of the hosts, with or without a port.
func named(hosts []string, header string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	host = strings.TrimSuffix(host, ".")
	return slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// atHome refuses requests that name another host than the allowed ones. Probes come by address, and learn nothing.
func (s *Server) atHome(next http.Handler) http.Handler {
	if len(s.cfg.AllowedHosts) == 0 {
		return next
	}
	refuse := s.handle(func(_ http.ResponseWriter, r *http.Request) error {
		s.refused(r, "the host "+r.Host)
		return errHost
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if named(s.cfg.AllowedHosts, r.Host) || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}
