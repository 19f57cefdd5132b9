package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/server"
)

// limitFlags bound what the server itself takes on.
type limitFlags struct{ connections, inflight int }

func (f *limitFlags) bind(flags *pflag.FlagSet) {
	flags.IntVar(&f.connections, "max-connections", server.DefaultConnections, "`N` connections at once; more are refused")
	flags.IntVar(&f.inflight, "max-inflight", server.DefaultInflight, "`N` requests at once, and N that wait for tokens, and N streams; more are refused with 503")
}

func (f *limitFlags) check() error {
	switch {
	case f.connections < 1:
		return usageError{errors.New("--max-connections must be at least 1")}
	case f.inflight < 1:
		return usageError{errors.New("--max-inflight must be at least 1")}
	}
	return nil
}

func (f *limitFlags) apply(cfg *server.Config) {
	cfg.MaxConnections, cfg.MaxInflight = f.connections, f.inflight
}
