package admin_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// distant is a store some milliseconds away.
type distant struct{ store.Store }

func elapse(d time.Duration) { time.Sleep(d) } // real time: none, all tests with distant run in a bubble

func (s distant) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	elapse(4 * time.Millisecond)
	return s.Store.Get(ctx, keys...)
}

func (s distant) Commit(ctx context.Context, writes ...store.Write) error {
	elapse(12 * time.Millisecond)
	return s.Store.Commit(ctx, writes...)
}

// Changes of different entities at once, by callers of one process or by processes: none fails because of the others.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 2, 8, 32} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := distant{memory.New(nil)}
				lims := make([]*weir.Limiter, processes)
				for i := range lims {
					var err error
					lims[i], err = weir.New(weir.Config{Store: st})
					must(t, err)
					t.Cleanup(func() { _ = lims[i].Close() })
				}
				var all sync.WaitGroup
				for caller := range 32 {
					all.Go(func() {
						for i := range 20 {
							entity := admin.Entity{ID: fmt.Sprint(caller, "-", i)}
							if err := admin.New(lims[caller%processes]).Entities.Create(t.Context(), entity); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
			})
		})
	}
}
