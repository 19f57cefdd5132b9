package cells

import (
	"cmp"
	"context"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Owner returns the cell whose share a store has, so that what decides on it must use that share; "" for none.
func Owner(ctx context.Context, local store.Catalog) (cell string, err error) {
	h, _, err := read[sharesRecord](ctx, local, record.SharesKey)
	if err != nil || h.Birth == "" {
		return "", err
	}
	return h.Cell, nil
}

// Follower is a process that uses a cell's share and takes no other part in the cell, such as a command. It implements
// [policy.Shares].
type Follower struct {
	cfg   Config
	local localShares
}

var _ policy.Shares = (*Follower)(nil)

// Follow returns a follower of the cell that a store belongs to. Errors: those of the store.
func Follow(ctx context.Context, local store.Catalog, cell string) (*Follower, error) {
	_, alone := local.(store.Exclusive)
	f := &Follower{cfg: Config{Local: local, Cell: cell, Alone: alone}.withDefaults()}
	f.local.init(&f.cfg)
	h, _, err := read[sharesRecord](ctx, local, record.SharesKey)
	if err != nil {
		return nil, err
	}
	f.cfg.Valid = cmp.Or(h.Valid, f.cfg.Valid) // as the cell's processes have it
	return f, f.local.read(ctx)
}

// Share implements policy.Shares. It reads the cell's record whenever what was read last has expired.
func (f *Follower) Share(namespace string) policy.Share {
	if t := f.local.table.Load(); !t.until.IsZero() && !time.Now().Before(t.until) {
		ctx, cancel := context.WithTimeout(context.Background(), minTimeout)
		defer cancel()
		_ = f.local.read(ctx) // what has expired stays so
	}
	return f.local.share(namespace)
}

// Stale implements policy.Shares.
func (f *Follower) Stale(ctx context.Context, epoch uint64) { f.local.stale(ctx, epoch) }
