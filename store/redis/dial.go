package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// server is the server of a store, or its cluster, and the connections to it.
type server struct {
	cfg     Config
	options rueidis.ClientOption
	cluster bool
	keys    keys
	client  atomic.Pointer[rueidis.Client]
	again   atomic.Bool // a new client is being created
	closed  atomic.Bool
	group   batch.Group
}

// errNotPrimary reports that the connected server is a replica. weir never reads from a replica: it may not have
// what was spent.
var errNotPrimary = errors.New("the server is not a primary")

// dialer returns a function that connects to a single server and checks each connection's role before use.
func (s *server) dialer(network string) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		defer cancel()
		var conn net.Conn
		var err error
		if cfg != nil {
			conn, err = (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, network, addr)
		} else {
			conn, err = d.DialContext(ctx, network, addr)
		}
		if err != nil {
			return nil, err
		}
		if err := s.assertPrimary(ctx, conn); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// assertPrimary checks the role of a connection's server. It leaves the connection as new, except that it is
// authenticated.
func (s *server) assertPrimary(ctx context.Context, conn net.Conn) error {
	if until, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(until); err != nil {
			return err
		}
	}
	r := bufio.NewReader(conn)
	ask := func(words ...string) (string, error) {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
		if _, err := io.WriteString(conn, b.String()); err != nil {
			return "", err
		}
		return readReply(r, 0)
	}
	if user, password := s.options.Username, s.options.Password; password != "" || user != "" {
		words := []string{"AUTH", password}
		if user != "" {
			words = []string{"AUTH", user, password}
		}
		if _, err := ask(words...); err != nil {
			return err
		}
	}
	role, err := ask("ROLE")
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOPERM"):
		// The account may lack ROLE. A replica refuses the scripts in any case.
	case err != nil:
		return err
	case role != "master":
		return fmt.Errorf("%w but a %s", errNotPrimary, role)
	}
	return conn.SetDeadline(time.Time{})
}

// replyError is an error that the server returned while a connection was being set up.
type replyError string

// Error returns the server's message.
func (e replyError) Error() string { return string(e) }

// readReply reads a reply and returns it; of an array, its first element.
func readReply(r *bufio.Reader, depth int) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if line == "" || depth > 4 {
		return "", errFormat
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", replyError(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1<<16 {
			return "", errFormat
		}
		if n < 0 {
			return "", nil
		}
		buf := make([]byte, n+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return "", err
		}
		return string(buf[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1<<16 {
			return "", errFormat
		}
		first := ""
		for i := range n {
			e, err := readReply(r, depth+1)
			if err != nil {
				return "", err
			}
			if i == 0 {
				first = e
			}
		}
		return first, nil
	}
	return "", errFormat
}

// run runs a script within the call timeout.
func (s *server) run(ctx context.Context, sc *script, keys, args []string) rueidis.RedisResult {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > s.cfg.CallTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.CallTimeout)
		defer cancel()
	}
	c := s.client.Load()
	r := sc.run(ctx, *c, keys, args)
	if demoted(r.Error()) {
		s.renew(c)
	}
	return r
}

// renew replaces a client whose server is no longer a primary: the name or the sentinels may point to another by now.
func (s *server) renew(old *rueidis.Client) {
	if s.cluster || !s.again.CompareAndSwap(false, true) {
		return // a cluster's client follows on its own
	}
	s.group.Go(func() {
		defer s.again.Store(false)
		if s.client.Load() != old {
			return
		}
		c, err := rueidis.NewClient(s.options)
		if c == nil || err != nil && !s.options.ForceSingleClient {
			return // the next call tries again
		}
		s.client.Store(&c)
		(*old).Close()
	})
}

func (s *server) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// now returns the time argument of scripts: empty, except in tests.
func (s *server) now() string {
	if s.cfg.Now == nil {
		return ""
	}
	return string(pair(nil, clock.Nanos(s.cfg.Now())))
}

func (s *server) margin() string { return strconv.FormatInt(s.cfg.Margin.Milliseconds(), 10) }
