package httpapi

import (
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer/problemjson"
	"github.com/weirlimits/weir/internal/answer/ratelimitheaders"
)

// Responses share these values. They must not be changed.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
)

// setLimits sets the RateLimit header fields and, if legacy, those with X-.
func setLimits(h http.Header, entity string, statuses []weir.LimitStatus, legacy bool) {
	policy, limit := ratelimitheaders.Fields(entity, statuses)
	if policy == "" {
		return
	}
	values := []string{policy, limit} // one allocation for both
	h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	if legacy {
		limit, remaining, reset := ratelimitheaders.Legacy(statuses)
		h.Set("X-RateLimit-Limit", limit)
		h.Set("X-RateLimit-Remaining", remaining)
		h.Set("X-RateLimit-Reset", reset)
	}
}

// setRetryAfter sets Retry-After to d, rounded up to whole seconds.
func setRetryAfter(h http.Header, d time.Duration) {
	h["Retry-After"] = []string{ratelimitheaders.RetryAfter(d)}
}

// Responses to decisions are encoded by hand: encoding/json would take a third of the request's time.

// appendTime appends a time as a JSON string.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendStatuses appends the statuses of limits as a JSON array.
func appendStatuses(b []byte, ss []weir.LimitStatus) []byte { return problemjson.AppendStatuses(b, ss) }
