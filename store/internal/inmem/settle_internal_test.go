package inmem

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// TestSettledMeanwhile checks that a settle that has read the time before its id expired, and looks for the id only after
// another settle has removed it, is not applied again.
func TestSettledMeanwhile(t *testing.T) {
	t.Parallel()
	var ids settledIDs
	at := time.Date(2026, time.November, 29, 12, 0, 0, 0, time.UTC)
	expires := at.Add(time.Minute)
	if err := ids.add("repeated", expires, at); err != nil {
		t.Fatal(err)
	}
	if err := ids.check("repeated", expires, at); !errors.Is(err, store.ErrSettled) {
		t.Errorf("repeated in time: %v", err)
	}
	for i := range firstSweep {
		if err := ids.add(fmt.Sprint(i), expires.Add(time.Hour), expires); err != nil {
			t.Fatal(err)
		}
	}
	if _, there := ids.expires["repeated"]; there {
		t.Fatal("an expired id was not removed")
	}
	if err := ids.check("repeated", expires, expires.Add(-1)); !errors.Is(err, store.ErrExpired) {
		t.Errorf("after it was removed: %v", err)
	}
	if err := ids.add("repeated", expires, expires.Add(-1)); !errors.Is(err, store.ErrExpired) {
		t.Errorf("removed between the check and the change: %v", err)
	}
}
