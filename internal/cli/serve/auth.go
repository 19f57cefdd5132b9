package serve

import (
	"context"
	"log/slog"

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
	f.book, err = auth.Open(f.File, s.log)
	if err == nil && s.tls.ClientCA == "" && f.book.Certificates() {
		s.log.Warn("entries for certificates have no effect without --tls-client-ca", slog.String("file", f.File))
	}
	return err
}
