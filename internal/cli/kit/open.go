package kit

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
)

// Open returns a limiter on the store and namespace that the flags name.
func (a *Run) Open(how stores.Access) (*weir.Limiter, error) {
	st, err := stores.Open(a.Store, how)
	if err != nil && a.Late != nil && CodeOf(err) == Unavailable {
		st, err = a.Late(err), nil
	}
	if err != nil {
		return nil, err
	}
	cfg := a.Config
	cfg.Store, cfg.Namespace = st, a.Namespace
	var shares policy.Shares
	if a.Shares != nil {
		if shares, err = a.Shares(st); err != nil {
			_ = st.Close()
			return nil, err
		}
	}
	lim, err := weir.New(cfg)
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	parts.Of(lim).Policies.Use(shares, a.LastGood)
	a.Opened = st
	return lim, nil
}

// With opens the store, runs f and closes the store. On disk, closing writes and can fail.
func (a *Run) With(how stores.Access, f func(lim *weir.Limiter) error) (err error) {
	lim, err := a.Open(how)
	if err != nil {
		return err
	}
	defer func() {
		if closed := lim.Close(); err == nil {
			err = closed
		}
	}()
	return f(lim)
}

// Call opens the store for an operation and calls f.
func (a *Run) Call(o *api.Op, f func(api.Caller) error) error {
	how := stores.Existing
	if o.Creates {
		how = stores.Create
	}
	return a.With(how, func(lim *weir.Limiter) error { return f(api.Local{Limiter: lim}) })
}
