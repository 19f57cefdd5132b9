package httpapi

import (
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer/problemjson"
)

// Responses to decisions are encoded by hand: encoding/json would take a third of the request's time.

// appendTime appends a time as a JSON string.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendStatuses appends the statuses of limits as a JSON array.
func appendStatuses(b []byte, ss []weir.LimitStatus) []byte { return problemjson.AppendStatuses(b, ss) }
