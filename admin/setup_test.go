package admin_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the time at which a test's clock stands.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
