package settings

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store/internal/broken"
	"github.com/weirlimits/weir/store/redis/internal/layout"
)

// Answer returns the message of an error reply from the server, or "".
func Answer(err error) string {
	if reply, ok := errors.AsType[ReplyError](err); ok {
		return string(reply)
	}
	if e, ok := errors.AsType[*rueidis.RedisError](err); ok && !e.IsNil() {
		return e.Error()
	}
	return ""
}

// HintLate is the hint of a call that was not answered in time.
const HintLate = "no answer in time: check the server's load and the network"

// HintFormat is the hint of a key that cannot be read.
const HintFormat = "the key was written by a later version of weir, or not by weir: upgrade, or delete it"

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
	"WEIRFORMAT":  HintFormat,
}

// Hint returns what to do about an error from Redis or the network, or "".
func Hint(err error) string {
	var (
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
		dns  *net.DNSError
	)
	word, _, _ := strings.Cut(Answer(err), " ")
	switch {
	case hints[word] != "":
		return hints[word]
	case errors.Is(err, layout.ErrFormat), errors.Is(err, ErrFormat):
		return HintFormat
	case errors.Is(err, ErrNotPrimary):
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
		return HintLate
	case broken.Connection(err):
		return "the server closed the connection: check that it runs"
	case errors.Is(err, rueidis.ErrClosing): // the driver's error for a server that it cannot connect to
		return "no connection could be made: check that the server runs, and is a primary"
	}
	return ""
}
