package secret

import (
	"net/http"
	"time"
)

// Client returns a client for requests that carry a secret. It follows no redirect, which could lead to another server
// or out of TLS: net/http sends Authorization to any port of the same host, also without TLS, and headers of other
// names anywhere. The answer is then the redirect itself. A timeout of 0 is none; via is nil for the default transport.
func Client(timeout time.Duration, via http.RoundTripper) *http.Client {
	return &http.Client{
		Timeout: timeout, Transport: via,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
