package store_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimits/weir/store"
)

// TestBoundsInGuide: the guide has the bounds as they are.
func TestBoundsInGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/configure/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{
		"MaxLimits": store.MaxLimits, "MaxOverrides": store.MaxOverrides, "MaxFormer": store.MaxFormer, "MaxCharges": store.MaxCharges, "MaxID": store.MaxID,
		"MaxWrites": store.MaxWrites, "MaxValue": store.MaxValue, "MaxCommit": store.MaxCommit,
	} {
		found := 0
		for line := range strings.Lines(string(guide)) {
			cells := strings.Split(line, "|")
			if len(cells) < 4 || !strings.Contains(cells[3], "store."+name+"`") {
				continue
			}
			found++
			if got, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(cells[2]), ",", "")); err != nil || got != n {
				t.Errorf("%s is %d, the guide has %s", name, n, cells[2])
			}
		}
		if found != 1 {
			t.Errorf("%s is %d times in the guide", name, found)
		}
	}
}

// TestBoundError: the message names the bound, its value and the call's.
func TestBoundError(t *testing.T) {
	t.Parallel()
	charges := make([]store.Charge, store.MaxLimits+1)
	for i := range charges {
		charges[i].Limit = &store.Limit{Name: fmt.Sprint(i)}
	}
	take := store.Take{Debits: []store.Debit{{Bucket: store.Bucket{Namespace: "n", Entity: "e", Resource: "r"}, Charges: charges}}}
	if err := take.Check(); err == nil || err.Error() != "65 limits of one bucket, at most 64 are allowed" {
		t.Errorf("%v", err)
	}
}

// A bucket that is named twice is found among few and many.
func TestTwice(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 32, 33, 500} {
		take := store.Take{}
		for i := range n {
			b := store.Bucket{Namespace: "n", Entity: strconv.Itoa(i), Resource: "r"}
			take.Debits = append(take.Debits, store.Debit{Bucket: b, Charges: []store.Charge{{Limit: store.Balance("x")}}})
		}
		settle := store.Settle{Debits: take.Debits}
		if err := errors.Join(take.Check(), settle.Check()); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		for at := range n - 1 {
			was := take.Debits[at].Bucket
			take.Debits[at].Bucket = take.Debits[n-1].Bucket
			if err := take.Check(); !errors.Is(err, store.ErrDuplicateBucket) {
				t.Errorf("%d and %d of %d: %v", at, n-1, n, err)
			}
			if err := settle.Check(); !errors.Is(err, store.ErrDuplicateBucket) {
				t.Errorf("%d and %d of %d: %v", at, n-1, n, err)
			}
			take.Debits[at].Bucket = was
		}
	}
}
