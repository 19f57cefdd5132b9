package reckon_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// A take whose caller has left may have been debited, and then returned by the store itself: no more than was debited for
// it.
func TestCountedOfLeft(t *testing.T) {
	t.Parallel()
	l := &store.Limit{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 1_000_000}
	state := func(debited, returned int64) store.State {
		return store.State{ID: 1, Limits: []store.LimitState{{Limit: l, Debited: debited, Returned: returned}}}
	}
	for _, c := range []struct {
		debited, returned int64
		right             bool
	}{
		{114, 0, true},
		{123, 0, true},
		{123, 7, true},
		{123, 9, true},
		{123, 10, false},
		{114, 1, false},
		{113, 0, false},
		{152, 0, false},
	} {
		b := reckon.NewBooks()
		b.Rest(state(0, 0), reckon.Epoch)
		b.Debited, b.MaybeDebited = 114, 37
		if err := b.Counted(l, state(c.debited, c.returned), false); (err == nil) != c.right {
			t.Errorf("%d debited, %d returned: %v", c.debited, c.returned, err)
		}
	}
}
