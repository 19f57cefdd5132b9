package serve

import (
	"context"
	"log/slog"
	"net"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// authFlags configure authentication.
type authFlags struct {
	File string `json:"auth"`

	book *auth.Book // nil: requests are not authenticated
}

func (f *authFlags) given() bool { return f.File != "" }

// open reads the tokens. It comes after the listeners.
func (f *authFlags) open(_ context.Context, s *serving) (err error) {
	if !f.given() {
		return nil
	}
	if f.book, err = auth.Open(f.File, s.log); err != nil {
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
