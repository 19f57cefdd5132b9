package answer

import (
	"cmp"
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
	cut, retry := len(b), longest(statuses)
	for _, pass := range []bool{true, false} {
		if pass && refused == 0 {
			continue
		}
		for _, st := range named[:n] {
			if st.Refused == pass {
				b = appendLimit(appendName(b, len(b) == cut, entity, resource, st), st, retry)
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
	if st.Heal != 0 {
		return append(appendField(append(b, ";q="...), st.Burst), `;qu="concurrent-requests"`...)
	}
	b = appendField(append(b, ";q="...), cmp.Or(st.Amount, st.Available))
	if w := window(st); w > 0 {
		b = appendField(append(b, ";w="...), w)
	}
	if st.Burst != st.Amount {
		b = appendField(append(b, ";weir-burst="...), st.Burst)
	}
	return b
}

// appendLimit appends what is left of a limit. In an answer with Retry-After, which should not be earlier than the end
// of an effective window, retry bounds those of limits that did not refuse.
func appendLimit(b []byte, st *weir.LimitStatus, retry time.Duration) []byte {
	b = appendField(append(b, ";r="...), st.Available)
	t := effective(st)
	if retry > 0 && t > 0 {
		t = min(t, retry)
	}
	switch {
	case t == math.MaxInt64:
		b = appendField(append(b, ";t="...), maxField)
	case t > 0:
		b = appendField(append(b, ";t="...), WholeSeconds(t))
	}
	return b
}

// window returns the length of a limit's window in seconds, or 0 if it has none of whole seconds.
func window(st *weir.LimitStatus) int64 {
	length := st.Period + st.Began + st.Ends // of a quota, the last two; of a rate, the first
	if length%time.Second != 0 {
		return 0
	}
	return int64(length / time.Second)
}

// effective returns a limit's effective window: the time in which no more than what is available should be spent. At a
// rate, it is the time in which the limit issues as much, so that a client that spreads what is available over it keeps
// to the rate, and at least until there is more. Of a quota, it is what is left of its window; without a period, the
// time until the limit is full. It returns 0 if there is none.
func effective(st *weir.LimitStatus) time.Duration {
	switch {
	case st.Refused && prepaid(st):
		return 0
	case st.Refused:
		return st.RetryAfter
	case st.Window != weir.Window{}:
		return st.Ends
	case st.Period == 0:
		return st.Full
	}
	return issuing(st, uint64(max(st.Available, 1)+max(-st.Available, 0)))
}

func appendField(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxField), 10)
}

// UntilMore returns the time until there is one token more than now, and at least one, if nobody spends. It saturates.
func UntilMore(st *weir.LimitStatus) time.Duration {
	switch {
	case st.Window != weir.Window{} && st.Available >= 1-st.Amount: // the next window has some
		return st.Ends
	case st.Period == 0: // all tokens are issued at once
		return max(st.Full, st.RetryAfter)
	}
	return issuing(st, uint64(1+max(-st.Available, 0)))
}

// issuing returns the time in which a rate issues tokens, rounded up. It saturates.
func issuing(st *weir.LimitStatus, tokens uint64) time.Duration {
	hi, lo := bits.Mul64(tokens, uint64(st.Period))
	lo, carry := bits.Add64(lo, uint64(st.Amount)-1, 0)
	hi += carry
	if hi >= uint64(st.Amount) {
		return math.MaxInt64
	}
	ns, _ := bits.Div64(hi, lo, uint64(st.Amount))
	return time.Duration(min(ns, math.MaxInt64))
}

// longest returns how long those limits refuse that did, or 0.
func longest(statuses []weir.LimitStatus) (d time.Duration) {
	for i := range statuses {
		if st := &statuses[i]; st.Refused && !st.Shadow {
			d = max(d, st.RetryAfter)
		}
	}
	return d
}

// Legacy returns the values of X-RateLimit-Limit, -Remaining and -Reset, in seconds, of the most binding limit, or ""
// if there is none.
func Legacy(statuses []weir.LimitStatus) (limit, remaining, reset string) {
	most := Binding(statuses)
	if most == nil {
		return "", "", ""
	}
	return strconv.FormatInt(cmp.Or(most.Amount, most.Burst, max(0, most.Available)), 10),
		strconv.FormatInt(max(0, most.Available), 10),
		strconv.FormatInt(ceil(resets(most)), 10)
}

// prepaid reports whether a limit is a balance, which must be topped up.
func prepaid(st *weir.LimitStatus) bool { return st.Burst == 0 }

// resets returns how long until a limit is full, and lets a refused request pass; 0 for a balance.
func resets(st *weir.LimitStatus) time.Duration {
	if prepaid(st) {
		return 0
	}
	return max(st.Full, st.RetryAfter)
}

// Binding returns the most binding limit: the one that refused for longest, or if none refused, the one with the
// smallest share of its burst left. It returns nil if all are in shadow.
func Binding(statuses []weir.LimitStatus) *weir.LimitStatus {
	return binding(statuses, func(string) bool { return true })
}

// binding returns the most binding of the limits whose names match.
func binding(statuses []weir.LimitStatus, match func(limit string) bool) (most *weir.LimitStatus) {
	for i := range statuses {
		if st := &statuses[i]; !st.Shadow && match(st.Limit) && (most == nil || binds(st, most)) {
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

// Jittered returns d plus up to three tenths, so that requests refused together do not return together. It returns 0,
// no time to retry, for the longest duration: a balance must be topped up.
func Jittered(d time.Duration) time.Duration {
	if d == math.MaxInt64 {
		return 0
	}
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
