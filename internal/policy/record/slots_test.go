package record_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// TestSlotsForEarlierVersions: a weir that does not know slots cannot read a record with a limit of slots, so it refuses
// to decide by it.
func TestSlotsForEarlierVersions(t *testing.T) {
	t.Parallel()
	rpm, parallel := record.Limit{Name: "rpm", Amount: 10, Period: time.Minute}, record.Limit{Name: "parallel", Slots: 20}
	for _, l := range []record.Limit{rpm, parallel} {
		var earlier struct { // as its limits were read; without a period, they were refused, too
			Name    string `json:"name"`
			Amount  int64  `json:"amount"`
			Period  string `json:"period"`
			Burst   int64  `json:"burst"`
			Enforce string `json:"enforce"`
			MaxDebt int64  `json:"max_debt"`
			Returns string `json:"returns"`
		}
		dec := json.NewDecoder(bytes.NewReader(record.Encode(l)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&earlier); (err != nil) != l.IsSlots() || (earlier.Period == "") != l.IsSlots() {
			t.Errorf("%s is read as %+v, %v", l, earlier, err)
		}
	}
}

// TestSlotsStored: what the store gets is the limit, and comes back as it was set.
func TestSlotsStored(t *testing.T) {
	t.Parallel()
	former := record.Rate{Slots: 10, Heal: time.Minute}
	l, err := record.Limit{Name: "parallel", Slots: 20, Enforce: 25, Former: former}.Validate()
	if err != nil {
		t.Fatal(err)
	}
	var back record.Limit
	if err := json.Unmarshal(record.Encode(l), &back); err != nil || back != l {
		t.Errorf("%+v is read as %+v, %v", l, back, err)
	}
	if f := l.StoredFormer(); f != *store.Slots("parallel", 10_000, time.Minute) {
		t.Errorf("the former limit is stored as %+v", f)
	}
	stored := l.Stored(false)
	if stored != *store.Slots("parallel", 20_000, 30*time.Second) {
		t.Errorf("stored as %+v", stored)
	}
	l.Enforce, l.Former = record.EnforceOn, record.Rate{}
	if back := record.Of(l.Terms().Charge(&stored)); back != l {
		t.Errorf("%+v came back as %+v", l, back)
	}
}

func TestSlotsScale(t *testing.T) {
	t.Parallel()
	covered := []record.Limit{{Name: "parallel", Slots: 20, Heal: time.Minute}}
	twice := record.Bounded{Scale: 2}
	got, err := record.ValidateLimits(twice.Of(covered))
	if want := (record.Limit{Name: "parallel", Slots: 40, Heal: time.Minute}); err != nil || got[0] != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if covered[0].Slots != 20 {
		t.Error("the covered limit changed")
	}
}
