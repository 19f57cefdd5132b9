//go:build unix

package redis_test

import "syscall"

var (
	stopped = syscall.SIGSTOP
	cont    = syscall.SIGCONT
)

// used returns the CPU time of this process in µs.
func used() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}
