package envoy

import (
	"cmp"
	"math"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/growing"
)

// usual is the number of descriptors that fit without further allocations.
const usual = 3

// buffers hold the parts of a usual answer, as one allocation.
type buffers struct {
	call    call
	resp    rlsv3.RateLimitResponse
	status  []rlsv3.RateLimitResponse_DescriptorStatus
	resets  []durationpb.Duration
	headers [3]corev3.HeaderValue
	lease   [1]*weir.Lease

	requests [usual]request
	statuses [usual]rlsv3.RateLimitResponse_DescriptorStatus
	until    [usual]durationpb.Duration
	aligned  [usual]*rlsv3.RateLimitResponse_DescriptorStatus
	added    [3]*corev3.HeaderValue
}

func newBuffers(n int) *buffers {
	r := &buffers{}
	r.status, r.resets = r.statuses[:], r.until[:]
	if n > usual {
		r.status, r.resets = make([]rlsv3.RateLimitResponse_DescriptorStatus, n), make([]durationpb.Duration, n)
	}
	r.status, r.resets = r.status[:n], r.resets[:n]
	return r
}

// describe sets a descriptor's status from the most significant limit: the one that refused for the longest time, or
// else the one with the least left.
func (c *call) describe(at int, statuses []weir.LimitStatus) {
	var most *weir.LimitStatus
	for i := range statuses {
		if st := &statuses[i]; !st.Shadow && (most == nil || moreSignificant(st, most)) {
			most = st
		}
	}
	if most == nil {
		return
	}
	st := &c.buf.status[at]
	st.CurrentLimit = c.s.limit(most)
	st.LimitRemaining = uint32(min(max(most.Available, 0), math.MaxUint32))
	var until time.Duration
	switch {
	case most.Refused && most.Amount > 0: // a balance does not reset
		until = most.RetryAfter
	case most.Full > 0:
		until = answer.UntilMore(most)
	}
	d := &c.buf.resets[at]
	d.Seconds, d.Nanos = int64(until/time.Second), int32(until%time.Second)
	st.DurationUntilReset = d
}

// moreSignificant reports whether a is more significant than b: refusing limits first, then requested ones, then those
// with less left.
func moreSignificant(a, b *weir.LimitStatus) bool {
	switch {
	case a.Refused != b.Refused:
		return a.Refused
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case (a.Requested > 0) != (b.Requested > 0):
		return a.Requested > 0
	}
	return a.Available < b.Available
}

// untilOne returns the time until a token is available.
func untilOne(st *weir.LimitStatus) time.Duration { return max(1, answer.UntilMore(st)) }

// addStatuses adds limits to those that the headers name, each once.
func (c *call) addStatuses(statuses []weir.LimitStatus) {
	if c.statuses == nil {
		c.statuses = statuses
		if n := len(c.requests); n > 1 {
			c.statuses = append(make([]weir.LimitStatus, 0, n*len(statuses)), statuses...)
		}
		return
	}
	have := c.statuses
next:
	for i := range statuses {
		st := &statuses[i]
		for j := range have {
			if h := &have[j]; h.Entity == st.Entity && h.Resource == st.Resource && h.Limit == st.Limit &&
				h.Source == st.Source {
				continue next
			}
		}
		c.statuses = append(c.statuses, *st)
	}
}

// answer returns the response for Envoy.
func (c *call) answer() *rlsv3.RateLimitResponse {
	r := c.buf
	resp := &r.resp
	resp.OverallCode = codeOK
	if c.over {
		resp.OverallCode = codeOver
	}
	aligned := r.aligned[:0]
	for i := range r.status {
		aligned = append(aligned, &r.status[i]) // an unknown descriptor has the code UNKNOWN, which is 0
	}
	resp.Statuses = aligned
	added := r.added[:0]
	if len(c.statuses) > 0 {
		if policy, limit := answer.Fields(c.statuses[0].Entity, c.statuses); policy != "" {
			r.headers[0].Key, r.headers[0].Value = "RateLimit-Policy", policy
			r.headers[1].Key, r.headers[1].Value = "RateLimit", limit
			added = append(added, &r.headers[0], &r.headers[1])
		}
	}
	if c.over {
		added = c.deny(resp, added)
	}
	resp.ResponseHeadersToAdd = added
	m := metadata{over: c.over, degraded: c.degraded, bound: c.bound, reason: c.reason}
	if most := answer.Binding(c.statuses); most != nil {
		m.policy = most.Limit
	}
	resp.DynamicMetadata = c.s.message(m)
	return resp
}

// refusedBy returns the limit that refuses the request, or the reason.
func (c *call) refusedBy() string {
	if most := answer.Binding(c.statuses); most != nil && c.reason == reasonExceeded {
		return most.Limit
	}
	return string(c.reason)
}

// deny adds to the response what Envoy sends with a refusal.
func (c *call) deny(resp *rlsv3.RateLimitResponse, added []*corev3.HeaderValue) []*corev3.HeaderValue {
	var retry time.Duration
	if retry = answer.Jittered(c.retry); c.retry > 0 && retry > 0 {
		h := &c.buf.headers[2]
		h.Key, h.Value = "Retry-After", answer.RetryAfter(retry)
		added = append(added, h)
	}
	add := func(name, value string) { added = append(added, &corev3.HeaderValue{Key: name, Value: value}) }
	format := c.s.cfg.Errors
	format.Fields(c.statuses, retry, add)
	if resp.RawBody = c.s.cfg.Body; len(resp.RawBody) > 0 || format == answer.ProblemJSON {
		return added
	}
	p := answer.Problem{Kind: answer.Exceeded, Detail: string(c.reason), Statuses: c.statuses, RetryAfter: retry}
	if kind, ok := kinds[c.reason]; ok {
		p.Kind = kind
	} else if c.retry > 0 {
		over := weir.ExceededError{Decision: weir.Decision{Statuses: c.statuses, RetryAfter: c.retry}}
		p.Detail = over.Error()
	}
	resp.RawBody = format.Append(nil, &p)
	add("Content-Type", format.MediaType())
	return added
}

// kinds are the kinds of refusals, except by a limit.
var kinds = map[reason]*answer.Kind{
	reasonBurst: answer.ExceedsBurst, reasonUnknown: answer.UnknownEntity, reasonBuckets: answer.BucketQuota,
	reasonStore: answer.Unavailable, reasonShare: answer.Unavailable,
}

// reason is the reason for an answer, for Envoy's logs.
type reason string

const (
	reasonNone       reason = ""
	reasonExceeded   reason = "limit exceeded"
	reasonBurst      reason = "larger than the burst"
	reasonSlots      reason = "limited by slots, which Envoy does not give back"
	reasonNothing    reason = "the descriptor's limit allows nothing"
	reasonOverrides  reason = "too many different limits of descriptors"
	reasonReturn     reason = "more is returned than was taken lately"
	reasonStore      reason = "the store did not answer in time"
	reasonShare      reason = "the server has no share of the limits"
	reasonUnknown    reason = "unknown entity"
	reasonBuckets    reason = "the namespace has too many buckets"
	reasonDomain     reason = "unknown domain"
	reasonDescriptor reason = "unknown descriptor"
	reasonNoLimits   reason = "no limits apply"
)

// metadata is the content of the dynamic metadata of an answer.
type metadata struct {
	over, degraded bool
	bound          int64 // how much may be admitted beyond the limits, if degraded
	reason         reason
	policy         string
}

// message returns the message with metadata. It is shared and must not be changed.
func (s *Service) message(k metadata) *structpb.Struct {
	return s.messages.get(k, func() *structpb.Struct {
		decision := "allow"
		if k.over {
			decision = "deny"
		}
		m := map[string]*structpb.Value{
			"decision": structpb.NewStringValue(decision),
			"degraded": structpb.NewBoolValue(k.degraded),
		}
		if k.bound != 0 {
			m["over"] = structpb.NewNumberValue(float64(k.bound))
		}
		if k.policy != "" {
			m["policy"] = structpb.NewStringValue(k.policy)
		}
		if k.reason != reasonNone {
			m["reason"] = structpb.NewStringValue(string(k.reason))
		}
		return &structpb.Struct{Fields: m}
	})
}

// limitKey holds the values that determine the message about a limit.
type limitKey struct {
	name   string
	amount int64
	period time.Duration
	window weir.Window
}

// limit returns the message about a limit. It is shared and must not be changed.
func (s *Service) limit(st *weir.LimitStatus) *rlsv3.RateLimitResponse_RateLimit {
	k := limitKey{st.Limit, st.Amount, st.Period, st.Window}
	return s.limits.get(k, func() *rlsv3.RateLimitResponse_RateLimit {
		l := &rlsv3.RateLimitResponse_RateLimit{Name: k.name}
		amount, period := k.amount, k.period
		period = cmp.Or(period, lengths[k.window.Unit()])
		if period == 0 { // a balance
			return l
		}
		if period < time.Second && time.Second%period == 0 && amount <= math.MaxInt64/int64(time.Second/period) {
			amount, period = amount*int64(time.Second/period), time.Second
		}
		l.RequestsPerUnit = uint32(min(amount, math.MaxUint32))
		for _, u := range units {
			n := period / u.length
			if period%u.length == 0 && n <= math.MaxUint32 {
				l.Unit = u.unit
				if n > 1 {
					l.UnitMultiplier = wrapperspb.UInt32(uint32(n))
				}
				break
			}
		}
		return l
	})
}

const (
	day   = 24 * time.Hour
	month = 30 * day
	year  = 365 * day
)

// lengths are those of the windows of the calendar, as Envoy counts them.
var lengths = map[string]time.Duration{
	"hour": time.Hour, "day": day, "week": 7 * day, "month": month, "quarter": 3 * month, "year": year,
}

// units are ordered from the longest to the shortest. Months and years have the lengths that Envoy uses.
var units = []struct {
	length time.Duration
	unit   rlsv3.RateLimitResponse_RateLimit_Unit
}{
	{year, rlsv3.RateLimitResponse_RateLimit_YEAR},
	{month, rlsv3.RateLimitResponse_RateLimit_MONTH},
	{7 * day, rlsv3.RateLimitResponse_RateLimit_WEEK},
	{day, rlsv3.RateLimitResponse_RateLimit_DAY},
	{time.Hour, rlsv3.RateLimitResponse_RateLimit_HOUR},
	{time.Minute, rlsv3.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND},
}

// cache holds values derived from their keys.
type cache[K comparable, V any] struct{ known growing.Map[K, V] }

// maxCached is the maximum number of cached values. Others are created each time.
const maxCached = 1024

func (c *cache[K, V]) get(k K, build func() V) V {
	if v, ok := c.known.Of(k, maxCached, func(int) V { return build() }); ok {
		return v
	}
	return build()
}
