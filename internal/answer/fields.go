package answer

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
)

// maxFields is how many limits the fields name at most, because proxies allow only about 8 KiB of headers.
const maxFields = 16

// maxField is the largest integer of a structured field.
const maxField = 999_999_999_999_999

// SetFields sets the RateLimit fields of a response and, if legacy is set, the X-RateLimit ones.
func SetFields(h http.Header, entity string, statuses []weir.LimitStatus, legacy bool) {
	policy, limit := Fields(entity, statuses)
	if policy == "" {
		return
	}
	values := []string{policy, limit} // one allocation for both
	h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	if legacy {
		limit, remaining, reset := Legacy(statuses)
		h.Set("X-RateLimit-Limit", limit)
		h.Set("X-RateLimit-Remaining", remaining)
		h.Set("X-RateLimit-Reset", reset)
	}
}

// Fields returns the values of RateLimit-Policy and RateLimit, or "" if there is no limit to name. Limits that
// refused come first in RateLimit. RateLimit-Policy keeps the order of the limits, so that it is the same in every
// response. Limits of entity are named without @entity.
func Fields(entity string, statuses []weir.LimitStatus) (policy, limit string) {
	var room [512]byte
	b := room[:0]
	var named [maxFields]*weir.LimitStatus
	n, refused := 0, 0
	var resource string
	if len(statuses) > 0 {
		resource = statuses[0].Resource
	}
	for i := range statuses {
		st := &statuses[i]
		if n == maxFields || st.Shadow || !nameable(st.Limit) || st.Entity != entity && !nameable(st.Entity) ||
			st.Resource != resource && !(nameable(st.Entity) && nameable(st.Resource)) {
			continue
		}
		b = appendPolicy(appendName(b, n == 0, entity, resource, st), st)
		named[n] = st
		n++
		if st.Refused {
			refused++
		}
	}
	if n == 0 {
		return "", ""
	}
	cut := len(b)
	for _, pass := range []bool{true, false} {
		if pass && refused == 0 {
			continue
		}
		for _, st := range named[:n] {
			if st.Refused == pass {
				b = appendLimit(appendName(b, len(b) == cut, entity, resource, st), st)
			}
		}
	}
	both := string(b) // one allocation for both
	return both[:cut], both[cut:]
}

// nameable reports whether a structured field can contain a name.
func nameable(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}

func appendName(b []byte, first bool, entity, resource string, st *weir.LimitStatus) []byte {
	if !first {
		b = append(b, ", "...)
	}
	b = appendEscaped(append(b, '"'), st.Limit)
	if st.Entity != entity || st.Resource != resource {
		b = appendEscaped(append(b, '@'), st.Entity)
	}
	if st.Resource != resource {
		b = appendEscaped(append(b, '/'), st.Resource)
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
		b = appendField(append(b, ";t="...), WholeSeconds(st.RetryAfter))
	case st.Full > 0:
		t := int64(maxField)
		if d := UntilMore(st); d < math.MaxInt64 {
			t = ceil(d)
		}
		b = appendField(append(b, ";t="...), t)
	}
	return b
}

func appendField(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxField), 10)
}

// UntilMore returns the time until there is one token more than now, and at least one, if nobody spends. It saturates.
func UntilMore(st *weir.LimitStatus) time.Duration {
	missing := uint64(1)
	if st.Available < 0 {
		missing += uint64(-st.Available)
	}
	hi, lo := bits.Mul64(missing, uint64(st.Period))
	lo, carry := bits.Add64(lo, uint64(st.Amount)-1, 0)
	hi += carry
	if hi >= uint64(st.Amount) {
		return math.MaxInt64
	}
	ns, _ := bits.Div64(hi, lo, uint64(st.Amount))
	return time.Duration(min(ns, math.MaxInt64))
}

// Legacy returns the values of X-RateLimit-Limit, -Remaining and -Reset, in seconds, of the most binding limit, or ""
// if there is none.
func Legacy(statuses []weir.LimitStatus) (limit, remaining, reset string) {
	most := Binding(statuses)
	if most == nil {
		return "", "", ""
	}
	return strconv.FormatInt(most.Amount, 10),
		strconv.FormatInt(max(0, most.Available), 10),
		strconv.FormatInt(ceil(max(most.Full, most.RetryAfter)), 10)
}

// Binding returns the most binding limit: the one that refused for longest, or if none refused, the one with the
// smallest share of its burst left. It returns nil if all are in shadow.
func Binding(statuses []weir.LimitStatus) (most *weir.LimitStatus) {
	for i := range statuses {
		if st := &statuses[i]; !st.Shadow && (most == nil || binds(st, most)) {
			most = st
		}
	}
	return most
}

func binds(a, b *weir.LimitStatus) bool {
	if a.RetryAfter != b.RetryAfter {
		return a.RetryAfter > b.RetryAfter
	}
	return float64(a.Available)*float64(b.Burst) < float64(b.Available)*float64(a.Burst)
}

// MaxJitter is the maximum that jitter adds to a retry delay.
const MaxJitter = 30 * time.Second

// Jittered returns d plus up to three tenths, so that requests refused together do not return together.
func Jittered(d time.Duration) time.Duration {
	d = min(max(d, 0), math.MaxInt64-MaxJitter-1)
	return d + rand.N(min(d/10*3, MaxJitter)+1)
}

// RetryAfter returns the value of Retry-After: whole seconds, at least 1, never fewer than d.
func RetryAfter(d time.Duration) string { return strconv.FormatInt(WholeSeconds(d), 10) }

// WholeSeconds rounds up to whole seconds, at least 1.
func WholeSeconds(d time.Duration) int64 { return max(1, ceil(d)) }

func ceil(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
