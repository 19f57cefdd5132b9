package outage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store"
)

// The time of the shares stands still while the machine is suspended, and does not follow when its clock is set. How
// long a charge may be repeated does not depend on it.
func TestExpiresByTheMachinesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []store.Settle
		f := New(Config{
			Entries: 100, Instances: func() int { return 1 }, LocalMax: 100, Cooldown: -1,
			Settle: func(_ context.Context, s store.Settle) (store.Outcome, error) {
				got = append(got, s)
				return store.Outcome{}, nil
			},
		})
		start := time.Now()
		f.now = func() time.Time { return start.Add(-48 * time.Hour) }
		debits := []store.Debit{{Bucket: store.Bucket{Entity: "alice"}, Charges: []store.Charge{{
			Limit: &store.Limit{Name: "rpd", Amount: 1000, Period: 24 * time.Hour, Burst: 10_000}, Amount: 5000,
		}}}}
		f.Warm(debits, &store.Outcome{Allowed: true, At: start})
		if out, _, ok := f.Take(debits, store.ExtentUnknown); !ok || !out.Allowed {
			t.Fatal(out, ok)
		}
		f.Close()
		if len(got) != 1 || !got[0].Expires.Equal(time.Now().Add(remembered)) {
			t.Errorf("%+v", got)
		}
	})
}
