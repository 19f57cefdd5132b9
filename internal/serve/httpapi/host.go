package httpapi

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// OnlyHosts answers requests whose Host is one of the hosts, with any port, and refuses others with a plain 421. This
// stops DNS rebinding: if the host name of a malicious page resolves to this machine, the browser treats this server as
// the page's own origin and lets the page read the responses. Such requests carry the page's host name.
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
