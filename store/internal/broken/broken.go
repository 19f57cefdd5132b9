// Package broken finds out whether an error is one of a network connection.
package broken

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// Connection reports whether a call failed because no connection could be made, or because it broke. A call without an
// answer in time is no such failure.
func Connection(err error) bool {
	var (
		op     *net.OpError
		dns    *net.DNSError
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &op):
		return !op.Timeout() || op.Op == "dial"
	case errors.As(err, &dns), errors.As(err, &cert), errors.As(err, &record):
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
