//go:build unix

package redis_test

import "syscall"

var (
	stopped = syscall.SIGSTOP
	cont    = syscall.SIGCONT
)
