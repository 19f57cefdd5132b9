package parts

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirlimits/weir/store"
)

// sealedAtOnce is how many buckets are sealed at a time.
const sealedAtOnce = 32

// Seal seals the buckets that are not sealed yet.
func (p *Parts) Seal(ctx context.Context, states []store.State) error {
	states = slices.DeleteFunc(states, func(st store.State) bool { return st.Sealed() })
	for some := range slices.Chunk(states, sealedAtOnce) {
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i := range some {
			all.Go(func() { _, errs[i] = p.Store.Take(ctx, store.Seal(some[i].Bucket)) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}
