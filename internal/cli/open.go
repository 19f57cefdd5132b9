package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
)

// access says whether a command may make the store. Only those that configure and serve may: a mistyped name in any
// other creates nothing.
type access bool

const (
	existing access = false
	create   access = true
)

// open returns a limiter on the store and namespace that the flags name.
func (a *app) open(how access) (*weir.Limiter, error) {
	st, err := openStore(a.store, how)
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, Namespace: a.namespace, StoreTimeout: a.timeout})
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	return lim, nil
}

// with opens the store, runs f, and closes the store, which on disk is a part of the work that can fail.
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

// openStore is the one place that knows every driver.
func openStore(address string, how access) (store.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return nil, storeUsage("store %q has no scheme: for a folder write disk:%s", address, address)
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
	case "redis", "rediss", "valkey":
		return nil, storeUsage("store %q: %s is not built into this version of weir: use disk:, dynamodb: or memory:", address, scheme)
	}
	return nil, storeUsage("store %q: unknown scheme %q: use disk:PATH, dynamodb://TABLE or memory:", address, scheme)
}

func storeUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// diskConfig reads PATH?mode=…&interval=….
func diskConfig(address, rest string) (string, *disk.Config, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if path == "" {
		return "", nil, storeUsage("store %q names no folder: write disk:./weir-data", address)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, storeUsage("store %q: %w", address, err)
	}
	cfg := &disk.Config{}
	for key, all := range values {
		value := all[len(all)-1]
		switch key {
		case "mode":
			cfg.Mode = disk.Mode(value)
			if !slices.Contains(disk.Modes, cfg.Mode) {
				return "", nil, storeUsage("store %q: mode %q is none of ahead, always, interval, off", address, value)
			}
		case "interval":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return "", nil, storeUsage("store %q: interval %q is not a time such as 1s", address, value)
			}
			cfg.Interval = d
		default:
			return "", nil, storeUsage("store %q: unknown option %q: there are mode and interval", address, key)
		}
	}
	return path, cfg, nil
}
