package answer

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Format is how clients are told that a request was not admitted.
type Format string

// The formats.
const (
	ProblemJSON Format = ""       // application/problem+json
	OpenAI      Format = "openai" // like the API of OpenAI, for its clients
)

// MediaType returns the media type of bodies.
func (f Format) MediaType() string {
	if f == OpenAI {
		return "application/json"
	}
	return "application/problem+json"
}

// Append appends the body for a problem: a line of JSON.
func (f Format) Append(b []byte, p *Problem) []byte {
	if f != OpenAI {
		return p.Append(b)
	}
	b = AppendString(append(b, `{"error":{"message":`...), p.Detail)
	b = AppendString(append(b, `,"type":`...), p.openAIType())
	b = append(b, `,"param":`...)
	if p.Field != "" {
		b = AppendString(b, p.Field)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"code":`...)
	if code := p.openAICode(); code != "" {
		b = AppendString(b, code)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}}\n"...)
}

// insufficientQuota is the type and the code of a refusal that ends only once somebody has paid.
const insufficientQuota = "insufficient_quota"

// openAIType returns the type of an error: of a refusal the unit of the limit that refused for longest, if it has one.
func (p *Problem) openAIType() string {
	switch {
	case p.Kind.Status >= http.StatusInternalServerError:
		return "server_error"
	case p.Kind.Status != http.StatusTooManyRequests:
		return "invalid_request_error"
	}
	if most := Binding(p.Statuses); most != nil && most.Refused {
		if prepaid(most) {
			return insufficientQuota
		}
		for _, u := range units {
			if u.counts(most.Limit) {
				return u.name
			}
		}
	}
	return "rate_limit_exceeded"
}

func (p *Problem) openAICode() string {
	if p.Kind == Exceeded {
		if most := Binding(p.Statuses); most != nil && most.Refused && prepaid(most) {
			return insufficientQuota
		}
		return "rate_limit_exceeded"
	}
	_, slug, _ := strings.Cut(p.Kind.URI, "#")
	return strings.ReplaceAll(slug, "-", "_")
}

// units are the units for which clients of OpenAI expect fields, and which limits count them.
var units = [...]struct {
	name   string
	counts func(limit string) bool
}{{"requests", record.CountsRequests}, {"tokens", countsTokens}}

// countsTokens reports whether a limit of that name counts the tokens of language models.
func countsTokens(name string) bool {
	switch name {
	case "tps", "tpm", "tph", "tpd", "tokens":
		return true
	}
	return false
}

// Fields calls set with the fields of an answer that only this format has. For requests and tokens, they are about the
// most binding limit with that unit.
func (f Format) Fields(statuses []weir.LimitStatus, retry time.Duration, set func(name, value string)) {
	if f != OpenAI {
		return
	}
	for _, u := range units {
		if st := binding(statuses, u.counts); st != nil {
			set("x-ratelimit-limit-"+u.name, strconv.FormatInt(max(st.Burst, st.Available, 0), 10))
			set("x-ratelimit-remaining-"+u.name, strconv.FormatInt(max(0, st.Available), 10))
			set("x-ratelimit-reset-"+u.name, millis(resets(st)).String())
		}
	}
	if most := Binding(statuses); most != nil && most.Refused && prepaid(most) {
		set("x-should-retry", "false") // otherwise the clients retry every 429
	}
	if retry > 0 {
		set("retry-after-ms", strconv.FormatInt(millis(retry).Milliseconds(), 10))
	}
}

// millis rounds up to whole milliseconds.
func millis(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 && d <= 1<<63-1-time.Millisecond {
		d += time.Millisecond - rest
	}
	return d.Truncate(time.Millisecond)
}
