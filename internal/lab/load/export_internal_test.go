package load

import "net/http"

// Through makes the target send its requests through rt. Virtual time needs this because a bubble cannot wait for sockets.
func (t *HTTP) Through(rt http.RoundTripper) { t.client.Transport = rt }
