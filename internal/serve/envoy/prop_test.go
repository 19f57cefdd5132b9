package envoy_test

import (
	"fmt"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
)

// TestNeverMore debits and returns at random while time stands still, and compares the service with a model: what is
// admitted fits, all or none; a refused request debits nothing; and the codes show which descriptors did not fit.
func TestNeverMore(t *testing.T) {
	t.Parallel()
	const burst = 8
	users := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		b.set("", "", weir.PerHour("rph", burst))
		left := map[string]int64{"a": burst, "b": burst, "c": burst}
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			var ds []*ratelimitv3.RateLimitDescriptor
			asked, peeked, returned := map[string]int64{}, map[string]bool{}, map[string]int64{}
			for range rapid.IntRange(1, 4).Draw(rt, "descriptors") {
				user := rapid.SampledFrom(users).Draw(rt, "user")
				n := rapid.Uint64Range(0, 5).Draw(rt, "hits")
				d := hits(n, entry("user="+user))
				switch {
				case rapid.IntRange(0, 4).Draw(rt, "back") == 0:
					d.IsNegativeHits = true
					returned[user] += int64(n)
				case n == 0:
					peeked[user] = true
				default:
					asked[user] += int64(n)
				}
				ds = append(ds, d)
			}
			fits := true
			for user, n := range asked {
				fits = fits && n <= left[user]
			}
			nothing := map[string]bool{}
			for user := range peeked { // as it would be after the other descriptors
				nothing[user] = left[user]-asked[user] < 1
				if asked[user] > left[user] {
					nothing[user] = false
				}
			}
			admitted := fits
			for _, none := range nothing {
				admitted = admitted && !none
			}
			resp := b.ask(ds...)
			if (resp.OverallCode == ok) != admitted {
				rt.Fatalf("%v of %v: %s", ds, left, resp)
			}
			if admitted {
				for user, n := range asked {
					left[user] -= n
				}
				for user, n := range returned {
					left[user] = min(burst, left[user]+n)
				}
			} else {
				said := false
				for _, s := range resp.Statuses {
					said = said || s.Code == over
				}
				if !said {
					rt.Fatalf("%v: nobody is over: %s", ds, resp)
				}
			}
			for _, user := range users {
				if got := b.left(user, "edge", "rph"); got != left[user] {
					rt.Fatalf("%s has %d left, want %d: %s", user, got, left[user], fmt.Sprint(ds))
				}
			}
		}
	})
}
