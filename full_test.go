package weir_test

import (
	"fmt"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/memory"
)

// A store that has no room for another bucket has answered: on_unavailable is for one that has not. Otherwise whoever
// can make up ids fills the table, and is then admitted without any limit.
func TestFullStoreAdmitsNobody(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{MaxBuckets: 3}), OnUnavailable: weir.Allow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	if err := lim.SetLimits(t.Context(), weir.Scope{}, weir.PerDay("rpm", 2)); err != nil {
		t.Fatal(err)
	}
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
