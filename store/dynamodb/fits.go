package dynamodb

import "github.com/weirlimits/weir/internal/clock"

func nobody(string) int64 { return 0 }

// fits reports whether a take's charges fit an item in addition to what others have been granted already.
func fits(it *item, pl place, j *job, now int64, spent func(name string) int64) bool {
	for i, a := range j.amounts {
		if !j.unbound(i) && !j.inShadow(i) && !fitsOne(it, pl, j, i, a, now, spent) {
			return false
		}
	}
	return true
}

// fitsOne is fits for a single charge.
func fitsOne(it *item, pl place, j *job, i int, a, now int64, spent func(name string) int64) bool {
	p, name := j.v.params[i], j.v.names[i]
	reading := pl.clock(p, now)
	level, ok := it.level(name)
	if !ok {
		level = reading
	}
	if n := spent(name); n != 0 {
		level = clock.Spend(level, reading, n)
	}
	return pl.fits(p, level, reading, a)
}

// leaveOut decides, by the last sight, which of a take's shadow charges fit and are debited.
func (b *batch) leaveOut(j *job) {
	it := missing
	if b.seen != nil {
		it = b.seen
	}
	for i, want := range j.shadow.wants {
		if !j.shadow.is[i] {
			continue
		}
		j.amounts[i] = want
		if j.shadow.out[i] = !fitsOne(it, b.place, j, i, want, b.now, b.spent); j.shadow.out[i] {
			j.amounts[i] = 0
		}
	}
}

// overflows reports whether a forced amount would raise a level above the maximum.
func overflows(b *batch, j *job, it *item) bool {
	for i, a := range j.amounts {
		if a <= 0 || !j.unbound(i) {
			continue
		}
		name, p := j.v.names[i], j.v.params[i]
		level, ok := it.level(name)
		if ok {
			p = it.find(name).params
		} else {
			level = b.place.clock(p, b.now)
		}
		reading := b.place.clock(p, b.now)
		if clock.Spend(clock.Spend(level, reading, b.spent(name)), reading, a) > clock.MaxLevel {
			return true
		}
	}
	return false
}
