//go:build linux && !race && !msan && !asan

package wire

import (
	"syscall"
	"unsafe"
)

// readNow reads what a socket has, and writeNow writes what it accepts. A [socket] never blocks, so Go's
// scheduler does not have to know of the call. If it did, the first call after the process was idle would wake the
// scheduler's monitor thread, which takes longer than the call: a quarter of the processor time of a lone decision.
func readNow(fd uintptr, b []byte) (int, error)  { return transferNow(syscall.SYS_READ, fd, b) }
func writeNow(fd uintptr, b []byte) (int, error) { return transferNow(syscall.SYS_WRITE, fd, b) }

func transferNow(call, fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
