// Package clocktest makes times of a machine whose two clocks do not agree.
package clocktest

import (
	"testing"
	"time"
	"unsafe"
)

// Shift returns a time that differs from t by the machine's clock only, in whole seconds, and not by the monotonic one.
// If by is negative, it is a time from before the machine was suspended for so long, or its clock was set forward;
// otherwise from before the clock was set back. There is no monotonic clock in a bubble of testing/synctest.
func Shift(tb testing.TB, t time.Time, by time.Duration) time.Time {
	tb.Helper()
	shifted := t
	// A time.Time with a monotonic reading has the machine's clock in its first word, the seconds above 30 bits.
	*(*int64)(unsafe.Pointer(&shifted)) += int64(by/time.Second) << 30
	if shifted.Sub(t) != 0 || shifted.Round(0).Sub(t.Round(0)) != by.Truncate(time.Second) {
		tb.Fatalf("%v could not be shifted by %s: %v", t, by, shifted)
	}
	return shifted
}
