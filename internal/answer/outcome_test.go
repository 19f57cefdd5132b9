package answer_test

import (
	"errors"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// TestOutcomeOfUnavailable: clients do not read that the store is at fault where the process must not decide.
func TestOutcomeOfUnavailable(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"the store does not answer, or not in time": weir.ErrUnavailable,
		"nothing can be decided here at present":    errors.Join(weir.ErrUnavailable, weir.ErrOfCell),
	} {
		o := answer.OutcomeOf(err, nil)
		if o.Code != weir.CodeUnavailable || o.Detail != want || o.RetryAfter <= 0 {
			t.Errorf("%v: %+v", err, o)
		}
	}
}
