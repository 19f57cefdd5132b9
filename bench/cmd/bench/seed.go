package main

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// resource is the resource of all requests.
const resource = "gpt-4"

// limiter returns a limiter over a store, with limits for every entity. The row closes it.
func limiter(e *env, st store.Store, cfg weir.Config, limits ...weir.Limit) (*weir.Limiter, error) {
	cfg.Store = st
	lim, err := weir.New(cfg)
	if err != nil {
		return nil, err
	}
	e.defers(lim.Close)
	return lim, admin.New(lim).Limits.Set(e.ctx, admin.Scope{}, limits...)
}
