package kit

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/client"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// NeedStore returns an error if the flags name a server, for commands that work only on a store.
func (a *Run) NeedStore() error {
	if a.Server == "" {
		return nil
	}
	return Usagef("%s does not work through a server: give --store URL, and no --server", a.command)
}

// OpenStore opens the store that the flags name.
func (a *Run) OpenStore(how stores.Access) (store.Store, error) {
	if err := a.NeedStore(); err != nil {
		return nil, err
	}
	return stores.Open(a.Store, how)
}

// Open returns a limiter on the store and namespace that the flags name.
func (a *Run) Open(how stores.Access) (*weir.Limiter, error) {
	st, err := a.OpenStore(how)
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

// Token returns WEIR_TOKEN, to be sent to the servers that these flags name. It fails as MaySend does.
func (a *Run) Token(servers ...string) (string, error) {
	token, ok := a.LookupEnv("WEIR_TOKEN")
	if !ok {
		return "", nil
	}
	return token, a.MaySend("", servers...)
}

// Call calls f with what runs an operation: the server, or else the store.
func (a *Run) Call(o *api.Op, f func(api.Caller) error) error {
	if a.Server != "" {
		token, err := a.Token("server")
		if err != nil {
			return err
		}
		c, err := client.New(a.Server, token, a.Namespace)
		if err != nil {
			return err
		}
		return f(c)
	}
	how := stores.Existing
	if o.Creates {
		how = stores.Create
	}
	return a.With(how, func(lim *weir.Limiter) error { return f(api.Local{Limiter: lim}) })
}
