package porttest

import (
	"net"
	"strconv"
	"testing"
)

// A port is reserved once, and not if a server listens on it.
func TestReserve(t *testing.T) {
	t.Parallel()
	for range 100 {
		port := Free(t)
		if n, err := strconv.Atoi(port); err != nil || n < first || n >= 32_768 {
			t.Errorf("port %q, %v", port, err)
		}
		if _, err := reserve(port); err == nil {
			t.Errorf("port %s was reserved twice", port)
		}
	}
	port := Free(t)
	socket := reserved.sockets[len(reserved.sockets)-1]
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = socket.Close()
	if _, err := reserve(port); err == nil {
		t.Errorf("port %s was reserved, and a server listens on it", port)
	}
}
