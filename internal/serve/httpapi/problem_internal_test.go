package httpapi

import (
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/store/memory"
)

func TestKindOfEveryCode(t *testing.T) {
	t.Parallel()
	for code, k := range kinds {
		if k == nil {
			t.Errorf("code %d has no kind of problem", code)
		}
	}
}

// TestOpenAIWithoutStatuses checks that what passes by itself has a time to retry in both forms, also if no limit's status
// is known: behind others that waited, while the store does not answer, and under load.
func TestOpenAIWithoutStatuses(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	s, err := New(Config{Config: decide.Config{Limiter: lim}, Errors: answer.OpenAI})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{decide.ErrTooLong, weir.ErrUnavailable, decide.ErrOverloaded} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/v1/acquire", nil)
		r.Pattern = "POST /v1/acquire"
		s.fail(w, r, err)
		ms, _ := strconv.Atoi(w.Header().Get("retry-after-ms"))
		if after, _ := strconv.Atoi(w.Header().Get("Retry-After")); ms < 1000 || ms > after*1000 {
			t.Errorf("%v: retry-after-ms %d, Retry-After %d", err, ms, after)
		}
	}
}
