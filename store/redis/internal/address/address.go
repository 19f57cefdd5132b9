// Package address reads addresses of Redis.
package address

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

var schemes = []string{"redis", "rediss", "valkey", "valkeys"}

// Knows reports whether a URL scheme is one of Redis's.
func Knows(scheme string) bool {
	base, kind, plus := strings.Cut(scheme, "+")
	return scheme == "unix" || slices.Contains(schemes, base) && (!plus || kind == "sentinel" || kind == "cluster")
}

// Parse is url.Parse, except that it accepts several hosts with ports, and its errors never repeat the password.
func Parse(address string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || !Knows(scheme) {
		return nil, errors.New("is not an address of Redis")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, hosts := rest[:end], rest[:end]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		authority = authority[:at+1] + "host"
	} else if scheme != "unix" {
		authority = "host"
	}
	u, err := url.Parse(scheme + "://" + authority + rest[end:])
	if err != nil {
		return nil, errors.New("is not a URL: escape special characters in the password")
	}
	u.Host = hosts
	return u, nil
}

// WithPort returns the address of a server, with a port if it has none.
func WithPort(host, port string) (string, error) {
	if host == "" {
		return "", errors.New("names no server")
	}
	if h, p, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); h == "" || err != nil || n == 0 {
			return "", errors.New("the server " + strconv.Quote(host) + " has no name or no port")
		}
		return host, nil
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port), nil
}
