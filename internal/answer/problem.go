package answer

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
)

// Kind is a kind of problem, on which clients may branch. Kinds are documented in docs/integrate/http.md.
type Kind struct {
	Status int
	URI    string
	Title  string
}

// Where kinds are documented.
const (
	Guide = "https://github.com/weirlimits/weir/blob/main/docs/integrate/http.md#"
	IANA  = "https://iana.org/assignments/http-problem-types#"
)

// The kinds that servers of limits and middlewares share.
var (
	ExceedsBurst = &Kind{
		http.StatusUnprocessableEntity, Guide + "exceeds-burst", "The request is larger than a limit's burst",
	}
	Exceeded = &Kind{
		http.StatusTooManyRequests, IANA + "quota-exceeded",
		"Request cannot be satisfied as assigned quota has been exceeded",
	}
	UnknownEntity = &Kind{http.StatusForbidden, Guide + "unknown-entity", "The entity is not known"}
	BucketQuota   = &Kind{http.StatusTooManyRequests, Guide + "bucket-quota", "The namespace has too many buckets"}

	Internal    = &Kind{http.StatusInternalServerError, Guide + "internal", "Internal error"}
	Unavailable = &Kind{
		http.StatusServiceUnavailable, IANA + "temporary-reduced-capacity",
		"Request cannot be satisfied due to temporary server capacity constraints",
	}
)

// Problem is why a request was not admitted, as sent to the client.
type Problem struct {
	Kind          *Kind
	Detail, Field string
	RetryAfter    time.Duration      // 0 for none
	Refused       bool               // refused by limits: Statuses are sent
	Degraded      bool               // with Refused: the store did not answer, and Statuses are of this process's share
	Over          int64              // with Degraded; see weir.Decision
	Entity        string             // with Refused: the entity whose limits are named without an entity
	Statuses      []weir.LimitStatus // with Refused
	Brief         bool               // with Refused: the names of those that refused are sent alone
	More          []byte             // an object of JSON with more members; nil for none
}

// Append appends the problem as one line of JSON.
func (p *Problem) Append(b []byte) []byte {
	b = AppendString(append(b, `{"type":`...), p.Kind.URI)
	b = AppendString(append(b, `,"title":`...), p.Kind.Title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Kind.Status), 10)
	b = AppendString(append(b, `,"detail":`...), p.Detail)
	if p.Field != "" {
		b = AppendString(append(b, `,"field":`...), p.Field)
	}
	if p.RetryAfter > 0 {
		b = AppendSeconds(append(b, `,"retry_after":`...), p.RetryAfter)
	}
	if p.Refused {
		b = appendViolated(append(b, `,"violated-policies":`...), p.Entity, p.Statuses)
		if !p.Brief {
			b = AppendStatuses(append(b, `,"limits":`...), p.Statuses)
		}
	}
	if p.Degraded {
		b = strconv.AppendInt(append(b, `,"degraded":true,"over":`...), p.Over, 10)
	}
	if len(p.More) > len("{}") {
		return append(append(append(b, ','), p.More[1:]...), '\n')
	}
	return append(b, '}', '\n')
}

// appendViolated appends the names of the limits that refused, as in the RateLimit fields, longest wait first.
func appendViolated(b []byte, entity string, statuses []weir.LimitStatus) []byte {
	var refused []*weir.LimitStatus
	for i := range statuses {
		if statuses[i].Refused {
			refused = append(refused, &statuses[i])
		}
	}
	slices.SortStableFunc(refused, func(x, y *weir.LimitStatus) int {
		return int(min(max(y.RetryAfter-x.RetryAfter, -1), 1))
	})
	b = append(b, '[')
	for i, st := range refused {
		if i > 0 {
			b = append(b, ',')
		}
		name, resource := st.Limit, statuses[0].Resource
		if st.Entity != entity || st.Resource != resource {
			name += "@" + st.Entity
		}
		if st.Resource != resource {
			name += "/" + st.Resource
		}
		b = AppendString(b, name)
	}
	return append(b, ']')
}
