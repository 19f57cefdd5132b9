package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
)

// trouble turns an error from Redis into a [store.Error] with a hint on what to do about it.
func (s *server) trouble(op, key string, err error) error {
	if errors.Is(err, store.ErrClosed) || errors.Is(err, rueidis.ErrClosing) && s.closed.Load() {
		return store.ErrClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // from a call that had its connection to itself
	}
	what := hint(err)
	if what == hintLate && s.options.TLSConfig != nil {
		what += ", and that the port expects TLS"
	}
	return &store.Error{Op: op, Key: strings.TrimSpace(s.where() + " " + key), Err: err, Hint: what}
}

// demoted reports whether a call failed because the server is no longer a primary.
func demoted(err error) bool {
	return err != nil && (strings.HasPrefix(answer(err), "READONLY") || errors.Is(err, errNotPrimary))
}

// answer returns the message of an error reply from the server, or "".
func answer(err error) string {
	var reply replyError
	if errors.As(err, &reply) {
		return string(reply)
	}
	var e *rueidis.RedisError
	if errors.As(err, &e) && !e.IsNil() {
		return e.Error()
	}
	return ""
}

const hintLate = "no answer in time: check the server's load and the network"

// hints are what to do about an error reply, by its first word.
var hints = map[string]string{
	"READONLY":    "the server has become a replica: weir reconnects; name the primary, or use sentinels or a cluster",
	"NOAUTH":      "the server requires a password: set it in the address, or as WEIR_REDIS_PASSWORD",
	"WRONGPASS":   "the user or the password is wrong",
	"NOPERM":      "the account may not run scripts on these keys: grant it +@all ~PREFIX:*, or see the guide",
	"LOADING":     "the server is loading its data: retry in a moment",
	"OOM":         "the server's memory is full: raise maxmemory, or shorten the margin",
	"CLUSTERDOWN": "the cluster has no majority, or not all slots are served: see redis-cli cluster info",
	"MASTERDOWN":  "the replica has lost its primary: name the primary",
	"MISCONF":     "the server cannot write its snapshot: see its log and disk",
	"NOREPLICAS":  "fewer replicas are connected than min-replicas-to-write requires",
	"BUSY":        "a script has run for seconds: see the server's log",
	"MOVED":       "the server belongs to a cluster: write redis+cluster://",
	"CROSSSLOT":   "the server belongs to a cluster: write redis+cluster://",
	"TRYAGAIN":    "slots of the cluster are being moved: retry",
	"WEIRFORMAT":  "the key was written by a later version of weir, or not by weir: upgrade, or delete it",
}

// hint returns what to do about an error from Redis or the network, or "".
func hint(err error) string {
	var (
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
		dns  *net.DNSError
	)
	word, _, _ := strings.Cut(answer(err), " ")
	switch {
	case hints[word] != "":
		return hints[word]
	case errors.Is(err, errFormat):
		return hints["WEIRFORMAT"]
	case errors.Is(err, errNotPrimary):
		return "name the primary, or use sentinels: the data of a replica may be out of date"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check the address and port, and that the server runs"
	case errors.Is(err, syscall.ENOENT):
		return "the socket does not exist: check the path, and that the server runs"
	case errors.As(err, &dns):
		return "the server's name was not found: check the address and DNS"
	case errors.As(err, &cert):
		return "the server's certificate is not trusted: check the address, and the machine's certificates and clock"
	case errors.As(err, &rec):
		return "the port does not speak TLS: write redis://, or use its TLS port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return hintLate
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(
		err, syscall.ECONNRESET,
	), errors.Is(err, syscall.EPIPE):
		return "the server closed the connection: check that it runs"
	case errors.Is(err, rueidis.ErrClosing): // the driver's error for a server that it cannot connect to
		return "no connection could be made: check that the server runs, and is a primary"
	}
	return ""
}
