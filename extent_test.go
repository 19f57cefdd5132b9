package weir_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

var errThrottled = &store.Error{Op: "take", Err: errors.New("throttled"), Extent: store.ExtentKey}

// A failure that concerns one key, or one call, means nothing for other calls: the store is still called. The key's own
// requests follow on_unavailable. A call that only waited for others of the process is never admitted.
func TestExtent(t *testing.T) {
	t.Parallel()
	late := &store.Error{Op: "take", Err: context.DeadlineExceeded, Extent: store.ExtentCall}
	for name, tt := range map[string]struct {
		failed error
		want   error // nil: admitted, degraded
	}{
		"of a key":          {errThrottled, nil},
		"of a key, late":    {&store.Error{Op: "take", Err: context.DeadlineExceeded, Extent: store.ExtentKey}, nil},
		"of a key, wrapped": {&store.Error{Op: "take", Err: errThrottled}, nil},
		"of a call":         {late, weir.ErrOverloaded},
	} {
		for _, mode := range []weir.OnUnavailable{weir.OnUnavailableAllow, weir.OnUnavailableLocal} {
			b := setup(t, func(c *weir.Config) { c.OnUnavailable = mode })
			b.set("", "", weir.PerMinute("rpm", 1000))
			b.take("bob", one)
			b.fake.does(func(f *fakeStore) {
				f.take = func(ctx context.Context, take store.Take) (store.Outcome, error) {
					if take.Debits[0].Bucket.Entity == "alice" {
						return store.Outcome{}, tt.failed
					}
					return f.Store.Take(ctx, take)
				}
			})
			for range 200 {
				lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
				switch {
				case tt.want != nil:
					if !errors.Is(err, tt.want) || !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, tt.failed) {
						t.Fatalf("%s, %s: got %v", name, mode, err)
					}
				case err != nil || !lease.Decision().Degraded:
					t.Fatalf("%s, %s: got %v", name, mode, err)
				}
				if b.take("bob", one).Decision().Degraded {
					t.Fatalf("%s, %s: another key is decided without the store", name, mode)
				}
			}
		}
	}
}
