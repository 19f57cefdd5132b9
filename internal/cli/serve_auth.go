package cli

import (
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/auth"
)

// authFlags say who may do what.
type authFlags struct{ file string }

func (f *authFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "auth", "", "`FILE` of the tokens that requests must have; see weir token")
}

func (f *authFlags) check() error { return nil }

func (f *authFlags) given() bool { return f.file != "" }

// open returns the book of tokens, nil if nobody is to be authenticated.
func (f *authFlags) open(log *slog.Logger) (*auth.Book, error) {
	if !f.given() {
		return nil, nil //nolint:nilnil // a nil book is one that lets everybody in
	}
	return auth.Open(f.file, log)
}

// warnClear says once that tokens can be read on the way to an address that others can reach.
func warnClear(log *slog.Logger, listeners ...net.Listener) {
	for _, ln := range listeners {
		if ln != nil && !loopback(ln.Addr()) {
			log.Warn("tokens travel in the clear: use --tls-cert and --tls-key, or a proxy that does", slog.String("address", ln.Addr().String()))
			return
		}
	}
}
