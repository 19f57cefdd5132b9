package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
)

// explain answers how a request would be decided, and why. It spends nothing.
func (s decisions) explain(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r, "entity", "resource", "tokens")
	if err != nil {
		return err
	}
	tokens, err := parseTokens(q.Get("tokens"))
	if err != nil {
		return err
	}
	x, err := q.lim.Explain(r.Context(), weir.Request{
		Entity: q.Get("entity"), Resource: q.Get("resource"),
		Tokens: tokens,
	})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.Explanation{Explanation: x})
}

// parseTokens parses amounts such as rpm=1,tpm=500.
func parseTokens(text string) (weir.Tokens, error) {
	tokens := make(weir.Tokens)
	if text == "" {
		return tokens, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		at := strings.LastIndexByte(part, '=')
		if at <= 0 {
			return nil, badField("tokens", "must be LIMIT=AMOUNT,… as in rpm=1,tpm=500")
		}
		n, err := strconv.ParseInt(part[at+1:], 10, 64)
		if err != nil || n < 0 {
			return nil, badField(within("tokens", []byte(part[:at])), "must be a whole number, 0 or more")
		}
		if _, twice := tokens[part[:at]]; twice {
			return nil, badField(within("tokens", []byte(part[:at])), "is a duplicate")
		}
		tokens[part[:at]] = n
	}
	return tokens, nil
}
