package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/broken"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// trouble turns an error from Redis into a [store.Error] with a hint on what to do about it.
func (s *server) trouble(op, key string, err error) error {
	if errors.Is(err, store.ErrClosed) || errors.Is(err, rueidis.ErrClosing) && s.closed.Load() {
		return store.ErrClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // from a call that had its connection to itself
	}
	at := strings.TrimSpace(s.where() + " " + key)
	if late, ok := errors.AsType[*store.Error](err); ok { // it waited in a queue
		late.Op, late.Key = op, at
		return late
	}
	what := settings.Hint(err)
	if what == settings.HintLate && s.options.TLSConfig != nil {
		what += ", and that the port expects TLS"
	}
	return &store.Error{Op: op, Key: at, Err: err, Hint: what, Extent: s.extent(err)}
}

// extent returns how much of the store an error concerns. In a cluster, a connection leads to one of several nodes.
func (s *server) extent(err error) store.Extent {
	reply := settings.Answer(err)
	word, _, _ := strings.Cut(reply, " ")
	switch {
	case alone(err), word == "WEIRFORMAT", errors.Is(err, layout.ErrFormat), strings.Contains(reply, "user_script"):
		return store.ExtentKey
	case reply != "", s.cluster:
		return store.ExtentUnknown
	case broken.Connection(err), errors.Is(err, rueidis.ErrClosing):
		return store.ExtentStore
	}
	return store.ExtentUnknown
}

// demoted reports whether a call failed because the server is no longer a primary.
func demoted(err error) bool {
	return err != nil && (strings.HasPrefix(settings.Answer(err), "READONLY") || errors.Is(err, settings.ErrNotPrimary))
}
