package layout_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
)

// Limits are encoded as docs/format/redis.md describes, and read again. Rates are as in versions without quotas.
func TestLimits(t *testing.T) {
	t.Parallel()
	month, err := calendar.Parse("month@UTC")
	if err != nil {
		t.Fatal(err)
	}
	const always = "8000000000000000" + "7fffffffffffffff"
	for _, c := range []struct {
		limit *store.Limit
		want  string
	}{
		{
			&store.Limit{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 90_000},
			"0036" + "00" + "0000000000015f90" + "000000000036ee80" + "0000000000000000" + "3eb0c6f7a0b5ed8d" +
				"000000000000ea60" + "0000000df8475800" + "72706d",
		}, {
			&store.Limit{Name: "usd", Amount: 1000, Burst: 1000, Window: month, Override: true},
			"0040" + "03" + "00000000000003e8" + "00000000000003e8" + "000983fd98910000" + "00126ad20e83ffff" +
				"00000000000003e8" + "0009d29229e00000" + "09" + "6d6f6e746840555443" + "757364",
		}, {
			store.Balance("c"), "0035" + "02" + "4000000000000000" + "c000000000000000" + always + "0000000000000000" +
				"0000000000000000" + "00" + "63",
		}, {
			store.Slots("p", 20_000, 30*time.Second), "0034" + "04" + "0000000000004e20" + "0000000000000000" +
				"0000000000000000" + "0000000000000000" + "0000000000000000" + "00000006fc23ac00" + "70",
		},
	} {
		raw := string(layout.AppendLimit(nil, c.limit, clock.Nanos(time.Date(2024, time.February, 29, 0, 0, 0, 0, time.UTC))))
		if got := hex.EncodeToString([]byte(raw)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.limit.Name, got, c.want)
		}
		if got, err := layout.ParseLimits(raw + raw); err != nil || len(got) != 2 || !reflect.DeepEqual(got[1], c.limit) {
			t.Errorf("%s: %+v, %v", c.limit.Name, got, err)
		}
		for n := 1; n < len(raw); n++ {
			if got, err := layout.ParseLimits(raw[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are %+v", c.limit.Name, n, len(raw), got[0])
			}
		}
	}
}
