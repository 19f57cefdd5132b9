//go:build !unix

package measure

import "time"

// CPU is not known here.
func CPU() time.Duration { return 0 }

// CPUOf is not known here.
func CPUOf(int) time.Duration { return 0 }
