package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/httplimit"
)

// completion is a client's request to an LLM endpoint.
type completion struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

// estimate is the most that a completion takes: the prompt, at about four bytes a token, and the longest possible
// answer.
func estimate(r *http.Request) (weir.Tokens, error) {
	body, err := httplimit.PeekBody(r, 1<<20)
	if err != nil {
		return nil, err
	}
	var c completion
	if err := json.Unmarshal(body, &c); err != nil || c.MaxTokens < 1 || c.MaxTokens > 100_000 {
		return nil, &httplimit.StatusError{Status: http.StatusBadRequest, Detail: "send a prompt and max_tokens, from 1 to 100000"}
	}
	return weir.Tokens{"rpm": 1, "tpm": int64(len(c.Prompt)/4) + c.MaxTokens}, nil
}

// model stands for a model that streams, and reports its usage at the end.
func model(completion) []string {
	return []string{`{"text":"Hello"}`, `{"text":" there"}`, `{"usage":{"total_tokens":42}}`}
}

// complete passes on the model's answer, and accounts for its usage.
func complete(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	for _, event := range model(c) {
		var chunk struct {
			Usage *struct {
				TotalTokens int64 `json:"total_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(event), &chunk); err == nil && chunk.Usage != nil {
			// Replace the estimate by the true cost. If the store does not answer now, the estimate stands.
			_ = httplimit.SetCost(r.Context(), weir.Tokens{"tpm": chunk.Usage.TotalTokens})
		}
		fmt.Fprintf(w, "data: %s\n\n", event)
		if rc.Flush() != nil {
			return // the client has gone: the requested tokens are spent
		}
	}
}

// An LLM endpoint spends the most that a completion may take before it calls the model. Once the stream has reported
// the usage, it gives back the rest.
func Example_llm() {
	ctx := context.Background()
	lim := exampleLimiter(weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 1000))
	defer lim.Close()
	limit, err := httplimit.New(httplimit.Config{
		Limiter: lim, Entity: httplimit.ByBearer(), Resource: httplimit.Fixed("gpt-4"), Tokens: estimate,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limit.Wrap(http.HandlerFunc(complete))
	post := func(body string) {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer sk-alice")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d [%s]\n", w.Code, w.Header().Get("RateLimit"))
	}

	post(`{"prompt":"Say hello","max_tokens":900}`) // spends 902, then 42
	post(`{"prompt":"Say hello","max_tokens":900}`) // so there is room for another
	post(`{"prompt":"Say hello"}`)

	av, err := lim.Available(ctx, httplimit.KeyID("sk-alice"), "gpt-4")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range av.Statuses {
		fmt.Printf("%s: %d of %d left\n", s.Limit, s.Available, s.Burst)
	}
	// Output:
	// 200 ["rpm";r=59;t=59, "tpm";r=98;t=6]
	// 200 ["rpm";r=58;t=58, "tpm";r=56;t=4]
	// 400 []
	// rpm: 58 of 60 left
	// tpm: 916 of 1000 left
}
