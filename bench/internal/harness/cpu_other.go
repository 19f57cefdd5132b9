//go:build !unix

package harness

import "time"

// CPU returns 0: processor time is not available on this system.
func CPU() time.Duration { return 0 }

// CPUOf returns 0: processor time is not available on this system.
func CPUOf(int) time.Duration { return 0 }
