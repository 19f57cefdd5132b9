package wire

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// route is what all requests with the same credentials have in common.
type route struct {
	creds           aws.Credentials
	pool            *pool // nil: the SDK makes the calls
	url             string
	host            string
	agent           string
	attempt         string
	target          string
	region, service string
	key             atomic.Pointer[signingKey]
}

func (r *route) by(c *aws.Credentials) bool {
	return r.creds.AccessKeyID == c.AccessKeyID && r.creds.SecretAccessKey == c.SecretAccessKey &&
		r.creds.SessionToken == c.SessionToken && r.creds.AccountID == c.AccountID
}

// read takes from a request what it has in common with others, and reports whether such requests can be made here.
func (r *route) read(req *http.Request) bool {
	u := req.URL
	if u.EscapedPath() != "/" || u.RawQuery != "" || u.User != nil || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	r.url, r.host = u.String(), req.Host
	if r.host == "" {
		r.host = u.Host
	}
	r.agent, r.attempt = req.Header.Get("User-Agent"), req.Header.Get("Amz-Sdk-Request")
	_, scope, _ := strings.Cut(req.Header.Get("Authorization"), "Credential=")
	scope, _, _ = strings.Cut(scope, ",")
	if parts := strings.Split(scope, "/"); len(parts) == 5 {
		r.region, r.service = parts[2], parts[3]
	}
	return clean(r.host) && clean(r.agent) && clean(r.attempt) &&
		clean(r.creds.AccessKeyID) && clean(r.creds.SessionToken) && clean(scope) && r.region != "" && r.service != ""
}

// clean reports whether a header can have this value.
func clean(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c > 0x7e }) && strings.TrimSpace(s) == s && !strings.Contains(s, "  ")
}

// same reports whether a request of the SDK is the one that this package would make, except for the order of the headers
// and of the body's members.
func (r *route) same(s *seen, body []byte) bool {
	var theirs, ours any
	if json.Unmarshal(s.body, &theirs) != nil || json.Unmarshal(body, &ours) != nil || !reflect.DeepEqual(theirs, ours) {
		return false
	}
	at, err := time.Parse(amzTime, s.req.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	h := s.req.Header
	text := string(r.appendHead(nil, s.body, at, h.Get("Amz-Sdk-Invocation-Id"), h.Get("X-Amzn-Trace-Id")))
	want := http.Header{}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n\r\n"), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			want[http.CanonicalHeaderKey(name)] = []string{value}
		}
	}
	delete(want, "Host") // net/http does not count it as a header
	have := h.Clone()
	have["Content-Length"] = want["Content-Length"] // net/http adds it
	return s.req.ContentLength == int64(len(s.body)) && s.req.Method == http.MethodPost && reflect.DeepEqual(have, want)
}

// poolOf returns the pool for an endpoint. It closes the one for any other endpoint.
func (c *Client) poolOf(u *url.URL) *pool {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addr := net.JoinHostPort(u.Hostname(), port)
	c.pooling.Lock()
	defer c.pooling.Unlock()
	if p := c.pool; p != nil {
		if p.addr == addr && (p.tls != nil) == (u.Scheme == "https") {
			return p
		}
		p.close()
		c.update.route.Store(nil) // nothing uses a closed pool
		c.get.route.Store(nil)
	}
	c.pool = newPool(c.transport, addr, u.Hostname(), u.Scheme == "https")
	return c.pool
}

// invocation returns an ID for a request, of the kind that the SDK uses: a random UUID.
func invocation() string {
	const digits = "0123456789abcdef"
	a, b := rand.Uint64()&^0xf000|0x4000, rand.Uint64()&^(3<<62)|1<<63
	var id [36]byte
	for i, at := 0, 0; i < 32; i++ {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			id[at] = '-'
			at++
		}
		n := a
		if i >= 16 {
			n = b
		}
		id[at] = digits[n>>(60-i%16*4)&15]
		at++
	}
	return string(id[:])
}
