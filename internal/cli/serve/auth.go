package serve

import (
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// authFlags configure authentication.
type authFlags struct{ file string }

func (f *authFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "auth", "", "`FILE` with the tokens that requests must present; see weir token")
}

func (f *authFlags) check() error { return nil }

func (f *authFlags) given() bool { return f.file != "" }

// open returns the book of tokens, or nil if requests are not authenticated.
func (f *authFlags) open(log *slog.Logger) (*auth.Book, error) {
	if !f.given() {
		return nil, nil //nolint:nilnil // a nil book lets everyone in
	}
	return auth.Open(f.file, log)
}

// warnClear warns, once, that tokens are sent unencrypted to an address that others can reach.
func warnClear(log *slog.Logger, listeners ...net.Listener) {
	for _, ln := range listeners {
		if ln != nil && !loopback(ln.Addr()) {
			log.Warn("tokens travel in the clear: use --tls-cert and --tls-key, or a proxy that terminates TLS", slog.String("address", ln.Addr().String()))
			return
		}
	}
}
