package serve

import (
	"context"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// authFlags configure authentication.
type authFlags struct {
	file string

	book *auth.Book // nil: requests are not authenticated
}

func (f *authFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "auth", "", "`FILE` with the tokens that requests must present; see weir token")
}

func (f *authFlags) check() error { return nil }

func (f *authFlags) given() bool { return f.file != "" }

// open reads the tokens. It comes after the listeners.
func (f *authFlags) open(_ context.Context, s *serving) (err error) {
	if !f.given() {
		return nil
	}
	if f.book, err = auth.Open(f.file, s.log); err != nil {
		return err
	}
	if s.tls.opened == nil {
		warnClear(s.log, s.http.ln, s.grpc.ln)
	}
	return nil
}

// warnClear warns, once, that tokens are sent unencrypted to an address that others can reach.
func warnClear(log *slog.Logger, listeners ...net.Listener) {
	for _, ln := range listeners {
		if ln != nil && !loopback(ln.Addr()) {
			log.Warn("tokens travel in the clear: use --tls-cert and --tls-key, or a proxy that terminates TLS",
				slog.String("address", ln.Addr().String()))
			return
		}
	}
}
