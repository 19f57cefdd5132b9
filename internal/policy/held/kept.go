package held

import (
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Kept is what a token keeps of a lease's charge; see weir.TokenCharge.
type Kept struct {
	Bucket            store.Bucket
	Limit             record.Limit
	Override, LeftOut bool
	Tokens, Over      int64
	Epoch             uint64
	Hold              *store.Hold
}

// Add adds the charge to what a lease has spent. The errors are [*record.FieldError].
func (k *Kept) Add(debits []store.Debit, over *Over) ([]store.Debit, error) {
	lim, err := k.Limit.Validate()
	if err != nil {
		return nil, err
	}
	used := uint64(k.Tokens) + uint64(k.Over)
	if min(k.Tokens, k.Over) < 0 || used > clock.MaxLevel/1000 || k.LeftOut && used > 0 ||
		k.Hold != nil && !lim.IsSlots() {
		return nil, record.Invalid("lease", "has a bad amount of %s: %d", lim.Name, k.Tokens)
	}
	at := slices.IndexFunc(debits, func(d store.Debit) bool { return d.Bucket == k.Bucket })
	if at < 0 {
		at = len(debits)
		debits = append(debits, store.Debit{Bucket: k.Bucket})
	}
	debits[at].Epoch = max(debits[at].Epoch, k.Epoch)
	stored := lim.Stored(k.Override)
	charge := lim.Terms().Charge(&stored)
	charge.Amount, charge.Shadow, charge.Hold = k.Tokens*1000, k.LeftOut, k.Hold
	over.Add(k.Bucket.Entity, charge.Limit, k.Over*1000)
	debits[at].Charges = append(debits[at].Charges, charge)
	return debits, nil
}
