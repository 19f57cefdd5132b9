package weir_test

import (
	"fmt"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// A store without room for another bucket has answered, and on_unavailable applies only to stores that do not answer.
// Otherwise a caller that invents IDs could fill the table and then be admitted without any limit.
func TestFullStoreAdmitsNobody(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{MaxBuckets: 3}), OnUnavailable: weir.OnUnavailableAllow})
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rpm", 2)))
	for i := range 3 {
		if ok, err := lim.Allow(t.Context(), fmt.Sprint(i), "api"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	admitted := 0
	for range 100 {
		if ok, _ := lim.Allow(t.Context(), "one more", "api"); ok {
			admitted++
		}
	}
	if admitted > 2 {
		t.Errorf("admitted %d, the limit is 2 a day", admitted)
	}
}
