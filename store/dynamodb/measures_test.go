package dynamodb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store"
)

func TestMeasures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		before := st.writes()
		rpm, alice := per("rpm", 10, time.Hour, 100), bkt("alice")
		st.want(s, true, of(alice, rpm, 60))
		st.want(s, false, of(alice, rpm, 60))
		got := make(map[string]store.Measure)
		for _, m := range s.Measures() {
			got[m.Name] = m
		}
		if got["writes_applied"].Value != 1 || !got["writes_applied"].Total || got["writes_denied"].Value+got["writes_applied"].Value != float64(st.writes()-before) ||
			got["writes_failed"].Value != 0 || got["writes_shared"].Value < 1 || got["remembered_buckets"].Value != 1 || got["remembered_items"].Value != 1 {
			t.Errorf("%d writes, %+v", st.writes()-before, got)
		}
	})
}
