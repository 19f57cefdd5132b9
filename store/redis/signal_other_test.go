//go:build !unix

package redis_test

import "os"

var (
	stopped os.Signal = os.Kill
	cont    os.Signal = os.Kill
)

func used() float64 { return 0 }
