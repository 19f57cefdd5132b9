package kit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/client"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// StoreAlone returns the address of the store, for commands that work only on one: it fails if a server is named.
func (a *Run) StoreAlone() (secret.Address, error) {
	if a.Server != "" {
		if a.places["server"] == onCommandLine {
			return "", Usagef("%s does not work through a server: give --store URL, and no --server", a.command)
		}
		return "", Usagef("%s does not work through a server, and %s names one: give --store URL", a.command,
			a.setBy("server"))
	}
	return a.StoreAt("store", a.Store)
}

// OpenStore opens the store that the flags name.
func (a *Run) OpenStore(how stores.Access) (store.Store, error) {
	at, err := a.StoreAlone()
	if err != nil {
		return nil, err
	}
	return stores.Open(at, how)
}

// Open returns a limiter on the store and namespace that the flags name.
func (a *Run) Open(how stores.Access) (*weir.Limiter, error) {
	st, err := a.OpenStore(how)
	sharesOf := a.sharesOf
	if err != nil && a.Late != nil && CodeOf(err) == Unavailable {
		st, sharesOf, err = a.Late(err), a.Shares, nil
	}
	if err != nil {
		return nil, err
	}
	cfg := a.Config
	cfg.Store, cfg.Namespace = st, a.Namespace
	var shares policy.Shares
	if sharesOf != nil {
		if shares, err = sharesOf(st); err != nil {
			_ = st.Close()
			return nil, err
		}
	}
	lim, err := weir.New(cfg)
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	policies := parts.Of(lim).Policies
	policies.Use(shares, a.LastGood)
	a.Opened = st
	if a.Decides {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if _, err = policies.Owned(ctx); errors.Is(err, weir.ErrOfCell) { // any other is met again by what decides
			return nil, errors.Join(err, lim.Close())
		}
	}
	return lim, nil
}

var _ = api.Describe("kit", "InCell\n\tcell  {NAME} of the cell that the store belongs to: needed to use its share")

// InCell names the cell whose share of the limits a command uses.
type InCell struct {
	Cell string `json:"cell"`
}

// sharing is of which limits a process may use a part.
type sharing struct {
	InCell

	Decides bool // Open fails with [weir.ErrOfCell] where decisions would
	// Shares returns the parts of the limits that the process may use. Nil if the limits are not shared.
	Shares func(store.Store) (policy.Shares, error)
}

// sharesOf returns the part of the limits that the process may use on a store: nil for all of them. On the store of a
// cell, what does not decide reckons with the cell's share, and what does gets it if it names the cell.
func (a *Run) sharesOf(st store.Store) (policy.Shares, error) {
	switch {
	case a.Shares != nil:
		return a.Shares(st)
	case a.Cell == "" && a.Decides:
		return nil, nil //nolint:nilnil // all of the limits, if the store belongs to no cell
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cell, err := cells.Owner(ctx, st)
	switch {
	case err != nil:
		return nil, err
	case a.Cell != "" && a.Cell != cell:
		return nil, Usagef("%s has no share of cell %q: it is the store of %s", a.Store, a.Cell,
			cmp.Or(cell, "no cell"))
	case cell == "":
		return nil, nil //nolint:nilnil // all of the limits
	}
	return cells.Follow(ctx, st, cell)
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

// Token returns the token of the flag --token, which may be empty, or else WEIR_TOKEN or what is in the file that
// WEIR_TOKEN_FILE names, to be sent to the servers that these flags name. It fails as MaySend does, also if another's
// file names whom to trust as these servers.
func (a *Run) Token(flag secret.Text, servers ...string) (_ secret.Text, err error) {
	token, what := flag, "token"
	if !flag.Given() {
		what = "a token"
		if token, err = secret.Env(a.LookupEnv, "WEIR_TOKEN"); err != nil {
			return token, Usage(err)
		}
	}
	if !token.Given() {
		return token, nil
	}
	return token, a.MaySend(what, append(servers, "server-ca")...)
}

// TLS returns how to call the servers that these flags name; nil for the default. It fails as MaySend does if a
// certificate would be presented to them.
func (a *Run) TLS(servers ...string) (*tls.Config, error) {
	if a.tls.cert != "" {
		if err := a.MaySend("client-cert", servers...); err != nil {
			return nil, err
		}
	}
	return a.tls.config()
}

// Transport returns what carries calls of the servers that these flags name, for [secret.Client]. It fails as TLS does.
func (a *Run) Transport(servers ...string) (http.RoundTripper, error) {
	conf, err := a.TLS(servers...)
	if conf == nil || err != nil {
		return nil, err
	}
	t, _ := http.DefaultTransport.(*http.Transport)
	t = t.Clone()
	t.TLSClientConfig = conf
	return t, nil
}

// Requested returns the namespace that requests name. Through a server they name none, unless one is set: the server
// takes the token's, or else its own.
func (a *Run) Requested() string {
	if a.Server != "" && a.places["namespace"] == unset {
		return ""
	}
	return a.Namespace
}

// InNamespace returns an error unless --namespace is the namespace that a file names, or is not given.
func (a *Run) InNamespace(name string) error {
	if a.places["namespace"] != onCommandLine || a.Namespace == name {
		return nil
	}
	return Usagef("--namespace is %s, but the file is for namespace %s: leave the flag out", a.Namespace, name)
}

// WarnLost prints that a command which configures the store in its own memory changes nothing that lasts.
func (a *Run) WarnLost(how stores.Access) {
	if how == stores.Create && strings.HasPrefix(string(a.Store), "memory:") {
		a.Err.Println("weir: " + a.setBy("store") + " is the memory of this process: what this command changes is " +
			"lost when it exits")
	}
}

// Call calls f with what runs an operation: the server, or else the store.
func (a *Run) Call(o *api.Op, f func(api.Caller) error) error {
	if a.Server != "" {
		token, err := a.Token(secret.Text{}, "server")
		if err != nil {
			return err
		}
		via, err := a.Transport("server")
		if err != nil {
			return err
		}
		c, err := client.New(string(a.Server), token.Reveal(), a.Requested(), via)
		if err != nil {
			return err
		}
		return f(c)
	}
	how := stores.Existing
	if o.Creates {
		how = stores.Create
	}
	a.Decides = o.Need == api.Spend
	a.WarnLost(how)
	return a.With(how, func(lim *weir.Limiter) error { return f(api.Local{Limiter: lim}) })
}
