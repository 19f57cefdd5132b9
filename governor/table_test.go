package governor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir/governor"
)

// TestInventedNames checks that clients that invent names of tables and indexes do not fill the memory, and that calls on
// a table that is not kept are counted once.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	g := mustNew(t, governor.Config{ReadUnits: 1000, WriteUnits: 1000})
	long := strings.Repeat("x", 256)
	g.Touch(long, "")
	g.Touch("one", long)
	if tables, budgets, indexes := g.Kept("one"); tables != 1 || budgets != 2+2 || indexes != 0 {
		t.Errorf("of a name that is too long, %d tables, %d budgets, %d indexes are kept", tables, budgets, indexes)
	}
	for i := range 20_000 {
		g.Touch(fmt.Sprint("table-", i), "")
		g.Touch("one", fmt.Sprint("index-", i))
	}
	if tables, budgets, indexes := g.Kept("one"); tables > 10_000 || budgets > 2+2*10_000 || indexes > 100 {
		t.Errorf("%d tables, %d budgets, %d indexes are kept", tables, budgets, indexes)
	}
	s := &stub{answer: answering(200, consumed("5"))}
	if err := put(t.Context(), s.client(g)); err != nil {
		t.Fatal(err)
	}
	if b := budgetOf(g, "", "", governor.Write); b.Consumed != 5 || b.Estimated != 0 {
		t.Errorf("consumed %v, of which %v are estimated, want 5", b.Consumed, b.Estimated)
	}
}
