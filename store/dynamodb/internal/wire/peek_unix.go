//go:build unix

package wire

import (
	"errors"
	"syscall"
)

// peeks is whether it can be seen that a server has closed a connection.
const peeks = true

// peek is a look at a socket between two calls.
type peek struct {
	nothing bool
	space   [1]byte
}

// look finds that there is nothing to be read, not even an end. What it reads is lost: the connection is not used again.
func (p *peek) look(fd uintptr) bool {
	_, err := syscall.Read(int(fd), p.space[:])
	p.nothing = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK)
	return true
}
