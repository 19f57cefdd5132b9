package serve

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// limitFlags bound the load that the server itself accepts.
type limitFlags struct{ connections, inflight int }

func (f *limitFlags) bind(flags *pflag.FlagSet) {
	flags.IntVar(&f.connections, "max-connections", decide.DefaultConnections,
		"accept at most `N` connections at once; refuse more")
	flags.IntVar(&f.inflight, "max-inflight", decide.DefaultInflight,
		"handle at most `N` requests at once, plus N waiting for tokens and N streams; refuse more with 503")
}

func (f *limitFlags) check() error {
	switch {
	case f.connections < 1:
		return kit.Usage(errors.New("--max-connections must be at least 1"))
	case f.inflight < 1:
		return kit.Usage(errors.New("--max-inflight must be at least 1"))
	}
	return nil
}
