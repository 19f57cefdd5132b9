package httpapi

import (
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// Responses share these values. They must not be changed.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
)

// setRetryAfter sets Retry-After to d, rounded up to whole seconds.
func setRetryAfter(h http.Header, d time.Duration) {
	h["Retry-After"] = []string{answer.RetryAfter(d)}
}

// Responses to decisions are encoded by hand: encoding/json would take a third of the request's time.

// appendTime appends a time as a JSON string.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendStatuses appends the statuses of limits as a JSON array.
func appendStatuses(b []byte, ss []weir.LimitStatus) []byte { return answer.AppendStatuses(b, ss) }
