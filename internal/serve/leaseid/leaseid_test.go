package leaseid_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/store"
)

// TestLargestID: the lease of the longest chain with the most limits, on a resource, its group and the total, has an id
// that is accepted.
func TestLargestID(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef")
	name := func(kind string, i, n int) string { return fmt.Sprintf("%s%0*d", kind, n-len(kind), i) }
	held := weir.LeaseToken{ID: leaseid.Unique(), Namespace: "n-1", Entity: name("e", 0, 256), Resource: name("r", 0, 256)}
	for e := range weir.MaxDepth {
		for _, resource := range []string{"", weir.GroupResource(name("g", 0, 249)), weir.TotalResource} {
			for l := range 64 {
				held.Charges = append(held.Charges, weir.TokenCharge{
					Entity: name("e", e, 256), Resource: resource, Tokens: weir.MaxTokens,
					Limit: weir.PerDay(name("l", l, 64), weir.MaxTokens),
				})
			}
		}
	}
	id := sign(key, strings.Repeat("n", 256), held)
	if _, got, ok := parse(key, id); !ok || len(got.Charges) != len(held.Charges) {
		t.Fatalf("an id of %d bytes, %t", len(id), ok)
	} else if got.Expires = held.Expires; !reflect.DeepEqual(got, held) {
		t.Error("the lease differs")
	}
}

// TestKinds checks that the id of a lease has the window of a quota, and balances.
func TestKinds(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef")
	held := weir.LeaseToken{ID: leaseid.Unique(), Namespace: "n-1", Entity: "e", Resource: "r"}
	for _, text := range []string{"rpm:60/min", "usd:5000/month+15@Europe/Berlin", "credits:balance"} {
		l, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		held.Charges = append(held.Charges, weir.TokenCharge{Entity: "e", Limit: l, Tokens: 7})
	}
	wantKinds := func() {
		t.Helper()
		if _, got, ok := parse(key, sign(key, "n", held)); !ok || !reflect.DeepEqual(got.Charges, held.Charges) {
			t.Errorf("read %+v, %t", got.Charges, ok)
		}
	}
	wantKinds()
	slots := weir.Limit{Name: "parallel", Slots: 20, Heal: 45 * time.Second}
	hold := &store.Hold{Birth: 1 << 60, End: time.Unix(1_800_000_000, 7).UTC(), Valid: 40 * time.Second}
	held.Charges = append(held.Charges,
		weir.TokenCharge{Entity: "e", Limit: slots, Tokens: 2, Hold: hold},
		weir.TokenCharge{Entity: "e", Limit: slots, LeftOut: true}, // in shadow
		weir.TokenCharge{Entity: "team", Resource: weir.TotalResource, Limit: weir.PerMinute("rpm", 5), Tokens: 1},
	)
	wantKinds()
}
