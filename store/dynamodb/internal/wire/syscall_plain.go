//go:build unix && (!linux || race || msan || asan)

package wire

import "syscall"

// The race detector treats what a goroutine wrote to memory before it sent something as visible to the goroutine that
// read it, but only if it is told of both calls.

func readNow(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func writeNow(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
