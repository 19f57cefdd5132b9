// Package porttest reserves TCP ports for the servers that tests start.
//
// A port that the system chose, and that was closed again, is not reserved: before the server listens on it, the system
// may give it to any connection of another test.
package porttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports lie below those that the system chooses: 32768 and above on Linux, 49152 and above elsewhere.
const (
	first = 10_000
	count = 32_768 - first
)

// reserved holds a UDP socket for each port, and so keeps other processes from reserving it. None is ever closed.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// Reserve returns a port of 127.0.0.1 on which no TCP server listens. While this process lives, no other call returns
// it, in any process, and the system does not choose it.
func Reserve() (string, error) {
	reserved.Lock()
	defer reserved.Unlock()
	begin := rand.IntN(count)
	for i := range count {
		port := strconv.Itoa(first + (begin+i)%count)
		if socket, err := reserve(port); err == nil {
			reserved.sockets = append(reserved.sockets, socket)
			return port, nil
		}
	}
	return "", errors.New("reserve a port: all from 10000 to 32767 are in use")
}

func reserve(port string) (net.PacketConn, error) {
	var cfg net.ListenConfig
	socket, err := cfg.ListenPacket(context.Background(), "udp4", "127.0.0.1:"+port)
	if err != nil {
		return nil, err
	}
	l, err := cfg.Listen(context.Background(), "tcp4", "127.0.0.1:"+port)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, l.Close()
}

// Free is [Reserve] for a test, which fails if there is no port.
func Free(t testing.TB) string {
	t.Helper()
	port, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
