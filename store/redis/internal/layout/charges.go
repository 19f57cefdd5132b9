package layout

import (
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Sizes in bytes of a level in the answer to a take, and of what follows it if the limit is of slots: the end of the
// current cohort, and the birth, each as long as a level.
const (
	levelSize = 9
	heldSize  = 2 * levelSize
)

// ChargeSize is the size in bytes of a charge of a take, without what its debits share.
const ChargeSize = 9

// AppendCharges appends the charges of a take.
func AppendCharges(buf []byte, charges []store.Charge) []byte {
	for i := range charges {
		flag := byte(0)
		switch {
		case charges[i].Force:
			flag = 1
		case charges[i].Shadow:
			flag = 2
		}
		buf = append(Pair(buf, charges[i].Amount), flag)
	}
	return buf
}

// LevelsSize returns the size in bytes of the levels of charges in the answer to a take.
func LevelsSize(charges []store.Charge) (n int) {
	for i := range charges {
		if n += levelSize; charges[i].Limit.IsSlots() {
			n += heldSize
		}
	}
	return n
}

// TakeLevels appends the levels of charges in the answer to a take at a time, which must be long enough.
func TakeLevels(to []store.Level, charges []store.Charge, raw string, at int64) []store.Level {
	for i := range charges {
		l := store.Level{Limit: charges[i].Limit, Level: Read64(raw), Refused: raw[8] == 1}
		if raw = raw[levelSize:]; l.Limit.IsSlots() {
			if took := raw[8] == 1; took {
				h := store.HoldOf(l.Limit, uint64(Read64(raw[levelSize:])), Read64(raw), at, int64(Skew))
				l.Hold = &h
			}
			raw = raw[heldSize:]
		}
		to = append(to, l)
	}
	return to
}

// AppendSettled appends the charges of a settle's debit: see settle.lua.
func AppendSettled(buf []byte, t *store.Settle, charges []store.Charge) []byte {
	for i := range charges {
		c := &charges[i]
		rule, bound := ruleOf(t, c)
		if c.Amount < 0 && c.Limit.IsBalance() {
			rule += 8 // one that is not there is not full
		}
		birth := int64(0)
		if c.Hold != nil {
			birth = int64(c.Hold.Birth)
		}
		buf = Pair(Pair(append(Pair(buf, c.Amount), rule), bound), birth)
	}
	return buf
}

// ruleOf returns the script's rule for a charge of a settle, and its bound.
func ruleOf(t *store.Settle, c *store.Charge) (rule byte, bound int64) {
	switch {
	case c.Hold != nil:
		return 4, clock.Nanos(c.Hold.End)
	case t.Forgive:
		return 3, 0
	case c.Amount > 0 && c.MaxDebt > 0:
		return 1, c.MaxDebt
	case c.Amount >= 0 || !c.StrictReturns():
		return 0, 0
	case t.Since.IsZero():
		return 2, 0
	}
	return 1, c.Limit.Params().Clock(clock.Nanos(t.Since))
}

// SettleLevels appends the levels of a settle's charges at a time: of the bucket that it left, which may be none, and
// what the script noted besides.
func SettleLevels(to []store.Level, charges []store.Charge, st *store.State, noted string, at int64) []store.Level {
	next := func() (n int64) {
		if len(noted) >= 8 {
			n, noted = Read64(noted), noted[8:]
		}
		return n
	}
	for i := range charges {
		c := &charges[i]
		level := store.Level{Limit: c.Limit, Level: c.Limit.Params().Fresh(at)}
		if has := Find(st, c.Limit); has != nil {
			level = store.Level{Limit: has.Limit, Level: has.Level}
		}
		if c.Amount > 0 && c.MaxDebt > 0 && c.Hold == nil {
			level.Left = next()
		}
		if c.Amount > 0 && c.Limit.IsSlots() {
			if end := next(); end != 0 {
				h := store.HoldOf(level.Limit, Birth(st.ID), end, at, int64(Skew))
				level.Hold = &h
			}
			level.Refused = c.Hold != nil && level.Hold == nil
		}
		to = append(to, level)
	}
	return to
}

// QuickLevels returns the levels of a settle's charges at a time: those that the script made quickly.
func QuickLevels(debits []store.Debit, raw string, at int64) (to []store.Level, err error) {
	for i := range debits {
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			if len(raw) < 8 {
				return nil, ErrFormat
			}
			l := store.Level{Limit: c.Limit, Level: Read64(raw)}
			if raw = raw[8:]; c.Amount > 0 && c.Hold != nil {
				if len(raw) < 8 {
					return nil, ErrFormat
				}
				if end := Read64(raw); end != 0 {
					h := store.HoldOf(l.Limit, c.Hold.Birth, end, at, int64(Skew))
					l.Hold = &h
				}
				l.Refused, raw = l.Hold == nil, raw[8:]
			}
			to = append(to, l)
		}
	}
	return to, nil
}
