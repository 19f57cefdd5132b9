package booking

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// none is a table without items.
type none struct{ table.API }

func (none) BatchGetItem(
	context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options),
) (*dynamodb.BatchGetItemOutput, error) {
	return &dynamodb.BatchGetItemOutput{}, nil
}

// bookkeeping is books whose clock is turned by hand.
type bookkeeping struct {
	*books

	now time.Time
}

func newBookkeeping() *bookkeeping {
	b := &bookkeeping{now: time.Date(2026, time.November, 21, 13, 0, 0, 0, time.UTC)}
	t := table.New(table.Config{Client: none{}, Table: "t", WriteTimeout: time.Minute, Now: func() time.Time { return b.now }})
	b.books = newBooks(t, table.Metering{}, 0)
	return b
}

// What is remembered of windows takes bounded memory, of which much is used.
func TestNamesForgotten(t *testing.T) {
	t.Parallel()
	b := newBookkeeping()
	const windows, atOnce, limits = 3000, 20, 10
	for i := 0; i < 2*windows; i += atOnce {
		sums := make(ledger.Sums)
		for n := range atOnce {
			w := ledger.Window{Of: store.OfResource, Namespace: "n", ID: fmt.Sprint((i + n) % windows), Type: store.Hourly}
			for l := range limits {
				c := store.LimitFigures{Limit: fmt.Sprintf("%0*d", store.MaxID, l), Figures: store.Figures{Debited: 1}}
				sums[w] = append(sums[w], c)
			}
		}
		if err := b.bound(t.Context(), nil, sums, false); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(namedFor)
		size := 0
		for _, n := range b.names.of {
			size += windowSize + len(n.limits)*sizeOf(fmt.Sprintf("%0*d", store.MaxID, 0))
		}
		if size > maxRemembered || i > windows && size < maxRemembered/2 {
			t.Fatalf("%d bytes are remembered after %d windows, want up to %d", size, i, maxRemembered)
		}
	}
}

// A window that is read again, maybe by two transactions at once, still names what it was to name.
func TestNamesMerged(t *testing.T) {
	t.Parallel()
	b := newBookkeeping()
	w := ledger.Window{Of: store.OfStore, Namespace: store.Registry, Type: store.Daily}
	sums := ledger.Sums{w: {{Limit: "tpm", Figures: store.Figures{Debited: 1}}}}
	if err := b.bound(t.Context(), nil, sums, false); err != nil {
		t.Fatal(err)
	}
	of := make(map[ledger.Window]*named)
	if err := b.read(t.Context(), of, []ledger.Window{w}, b.now); err != nil {
		t.Fatal(err)
	}
	if !of[w].limits["tpm"] {
		t.Errorf("the window names %v", of[w].limits)
	}
}
