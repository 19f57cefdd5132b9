package settings

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ErrNotPrimary reports that the connected server is a replica. weir never reads from a replica: it may not have
// what was spent.
var ErrNotPrimary = errors.New("the server is not a primary")

// ErrFormat reports an answer or a value that weir does not understand.
var ErrFormat = errors.New("unknown format")

// AssertPrimary checks the role of a connection's server. It leaves the connection as new, except that it is
// authenticated. Errors: [ErrNotPrimary], [ReplyError], [ErrFormat], those of the connection.
func AssertPrimary(ctx context.Context, conn net.Conn, user, password string) error {
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
	if password != "" || user != "" {
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
		return fmt.Errorf("%w but a %s", ErrNotPrimary, role)
	}
	return conn.SetDeadline(time.Time{})
}

// ReplyError is an error that the server returned while a connection was being set up.
type ReplyError string

// Error returns the server's message.
func (e ReplyError) Error() string { return string(e) }

// readReply reads a reply and returns it; of an array, its first element.
func readReply(r *bufio.Reader, depth int) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if line == "" || depth > 4 {
		return "", ErrFormat
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", ReplyError(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1<<16 {
			return "", ErrFormat
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
			return "", ErrFormat
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
	return "", ErrFormat
}
