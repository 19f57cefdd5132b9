package server

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
)

// The RateLimit fields of draft-ietf-httpapi-ratelimit-headers-10:
//
//	RateLimit-Policy: "rpm";q=100;w=60;weir-burst=150, "rpm@org-1";q=1000;w=60
//	RateLimit: "rpm";r=42;t=1
//
// A parent's limit goes by limit@entity. q and w are what is issued in a window, r is what could be spent now, t in
// how many seconds more can be. Both are lists of structured fields, whose strings are ASCII: a limit that cannot be
// named so is left out, and is found in the body alone. So is a limit in shadow: nobody is to slow down for it.

// maxFields bounds how many limits the fields name: proxies allow some 8 KiB of headers.
const maxFields = 16

// maxField is the largest integer of a structured field.
const maxField = 999_999_999_999_999

// Answers share these values; nobody changes them.
var (
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
)

// setLimits sets the RateLimit fields. Limits that refused come first in RateLimit; RateLimit-Policy keeps the order
// of the limits, so that it is the same from one answer to the next.
func (s *Server) setLimits(h http.Header, entity string, statuses []weir.LimitStatus) {
	if len(statuses) == 0 {
		return
	}
	var room [512]byte
	b := room[:0]
	var named [maxFields]*weir.LimitStatus
	n, refused := 0, 0
	for i := range statuses {
		st := &statuses[i]
		if n == maxFields || st.Shadow || !nameable(st.Limit) || st.Entity != entity && !nameable(st.Entity) {
			continue
		}
		b = appendPolicy(appendName(b, n == 0, entity, st), st)
		named[n] = st
		n++
		if st.Refused {
			refused++
		}
	}
	if n == 0 {
		return
	}
	cut := len(b)
	for _, pass := range []bool{true, false} {
		if pass && refused == 0 {
			continue
		}
		for _, st := range named[:n] {
			if st.Refused == pass {
				b = appendLimit(appendName(b, len(b) == cut, entity, st), st)
			}
		}
	}
	both := string(b) // one allocation for both, and one for their slices
	values := []string{both[:cut], both[cut:]}
	h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	if s.cfg.LegacyHeaders {
		setLegacy(h, statuses)
	}
}

// nameable reports whether a name can stand in a structured field.
func nameable(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}

func appendName(b []byte, first bool, entity string, st *weir.LimitStatus) []byte {
	if !first {
		b = append(b, ", "...)
	}
	b = appendEscaped(append(b, '"'), st.Limit)
	if st.Entity != entity {
		b = appendEscaped(append(b, '@'), st.Entity)
	}
	return append(b, '"')
}

func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return b
}

func appendPolicy(b []byte, st *weir.LimitStatus) []byte {
	b = appendField(append(b, ";q="...), st.Amount)
	if st.Period%time.Second == 0 {
		b = appendField(append(b, ";w="...), int64(st.Period/time.Second))
	}
	if st.Burst != st.Amount {
		b = appendField(append(b, ";weir-burst="...), st.Burst)
	}
	return b
}

func appendLimit(b []byte, st *weir.LimitStatus) []byte {
	b = appendField(append(b, ";r="...), st.Available)
	switch {
	case st.Refused:
		b = appendField(append(b, ";t="...), max(1, wholeSeconds(st.RetryAfter)))
	case st.Full > 0:
		b = appendField(append(b, ";t="...), untilMore(st))
	}
	return b
}

func appendField(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxField), 10)
}

// untilMore returns in how many seconds there is a token more than now, and one at all, rounded up.
func untilMore(st *weir.LimitStatus) int64 {
	missing := uint64(1)
	if st.Available < 0 {
		missing += uint64(-st.Available)
	}
	hi, lo := bits.Mul64(missing, uint64(st.Period))
	lo, carry := bits.Add64(lo, uint64(st.Amount)-1, 0)
	hi += carry
	if hi >= uint64(st.Amount) {
		return maxField
	}
	ns, _ := bits.Div64(hi, lo, uint64(st.Amount))
	seconds := ns / uint64(time.Second)
	if ns%uint64(time.Second) > 0 {
		seconds++
	}
	return int64(seconds)
}

// setLegacy sets X-RateLimit-Limit, -Remaining and -Reset, in seconds, of the limit that binds most.
func setLegacy(h http.Header, statuses []weir.LimitStatus) {
	var most *weir.LimitStatus
	for i := range statuses {
		if st := &statuses[i]; !st.Shadow && (most == nil || binds(st, most)) {
			most = st
		}
	}
	h.Set("X-RateLimit-Limit", strconv.FormatInt(most.Amount, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(max(0, most.Available), 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(wholeSeconds(max(most.Full, most.RetryAfter)), 10))
}

// binds reports whether a binds more than b: it refused for longer, or has less of its burst left.
func binds(a, b *weir.LimitStatus) bool {
	if a.RetryAfter != b.RetryAfter {
		return a.RetryAfter > b.RetryAfter
	}
	return float64(a.Available)*float64(b.Burst) < float64(b.Available)*float64(a.Burst)
}

// maxJitter bounds by how much a client is sent away longer than it must be.
const maxJitter = 30 * time.Second

// jittered returns d and up to three tenths more, so that those who were refused together do not come back together.
func jittered(d time.Duration) time.Duration {
	d = min(max(d, 0), math.MaxInt64-maxJitter-1)
	return d + rand.N(min(d/10*3, maxJitter)+1)
}

// setRetryAfter sets whole seconds, never fewer than d.
func setRetryAfter(h http.Header, d time.Duration) {
	h["Retry-After"] = []string{strconv.FormatInt(max(1, wholeSeconds(d)), 10)}
}
