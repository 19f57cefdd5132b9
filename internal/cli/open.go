package cli

import (
	"fmt"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// access says whether a command may create the store. Only commands that configure or serve may, so that a mistyped name
// in any other command creates nothing.
type access bool

const (
	existing access = false
	create   access = true
)

// open returns a limiter on the store and namespace that the flags name.
func (a *app) open(how access) (*weir.Limiter, error) {
	st, err := openStore(a.store, how)
	if err != nil && a.late != nil && codeOf(err) == unavailable {
		st, err = a.late(err), nil
	}
	if err != nil {
		return nil, err
	}
	var shares weir.Shares
	if a.shares != nil {
		if shares, err = a.shares(st); err != nil {
			_ = st.Close()
			return nil, err
		}
	}
	lim, err := weir.New(weir.Config{
		Store: st, Namespace: a.namespace, StoreTimeout: a.timeout, DecideWithin: a.within, Observer: a.observer,
		OnUnavailable: a.onUnavailable, Instances: a.instances, Shares: shares, LastGood: a.lastGood,
	})
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	a.opened = st
	return lim, nil
}

// with opens the store, runs f and closes the store. On disk, closing writes and can fail.
func (a *app) with(how access, f func(lim *weir.Limiter) error) (err error) {
	lim, err := a.open(how)
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

// openStore opens a store. It is the only place that knows every driver.
func openStore(address string, how access) (store.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return nil, storeUsage("store %q has no scheme: for a folder, write disk:%s", address, address)
	}
	switch scheme {
	case "memory":
		if rest != "" {
			return nil, storeUsage("store %q: memory: takes no name and no options", address)
		}
		return memory.New(nil), nil
	case "disk":
		path, cfg, err := diskConfig(address, rest)
		if err != nil {
			return nil, err
		}
		cfg.MustExist = how == existing
		return disk.Open(path, cfg)
	case "dynamodb":
		return openDynamo(address, rest)
	}
	if redis.Knows(scheme) {
		return openRedis(address)
	}
	return nil, storeUsage("store %q: unknown scheme %q: use disk:PATH, redis://HOST, dynamodb://TABLE or memory:", address, scheme)
}

func storeUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
