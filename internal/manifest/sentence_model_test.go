package manifest_test

import (
	"time"

	"github.com/weirlimits/weir"
)

// quota is a quota of the reference: by the local date in a zone, computed without weir's calendar.
type quota struct {
	amount int64
	layout string // what of the local date and time tells its windows apart
	months bool
	spent  map[string]int64
}

// key names the window that an instant is in.
func (q *quota) key(at time.Time, zone *time.Location) string { return at.In(zone).Format(q.layout) }

// next returns when the next window begins.
func (q *quota) next(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.In(zone).Date()
	if q.months {
		return time.Date(y, m+1, 1, 0, 0, 0, 0, zone)
	}
	return time.Date(y, m, d+1, 0, 0, 0, 0, zone)
}

// rate is a rate per minute of the reference: tokens are issued one after the other.
type rate struct {
	amount int64
	each   time.Duration // a thousandth of a token is issued
	level  int64         // thousandths, counted from 1970
}

func (r *rate) issued(at time.Time) int64 { return at.UnixNano() / int64(r.each) }

// charge is what a request takes of a limit.
type charge struct {
	tokens int64
	quota  *quota
	rate   *rate
}

// wait returns how long until a charge fits.
func (c *charge) wait(at time.Time, zone *time.Location) time.Duration {
	if q := c.quota; q != nil {
		if q.spent[q.key(at, zone)]+c.tokens <= q.amount {
			return 0
		}
		return q.next(at, zone).Sub(at)
	}
	r := c.rate
	need := max(r.level, r.issued(at)) + 1000*(c.tokens-r.amount)
	return max(0, time.Unix(0, need*int64(r.each)).Sub(at))
}

func (c *charge) spend(at time.Time, zone *time.Location) {
	if c.quota != nil {
		c.quota.spent[c.quota.key(at, zone)] += c.tokens
	} else {
		c.rate.level = max(c.rate.level, c.rate.issued(at)) + 1000*c.tokens
	}
}

// giveBack undoes a debit of another time: of a quota only within its window.
func (c *charge) giveBack(then, at time.Time, zone *time.Location) {
	switch q := c.quota; {
	case q == nil:
		c.rate.level -= 1000 * c.tokens
	case q.key(then, zone) == q.key(at, zone):
		q.spent[q.key(then, zone)] -= c.tokens
	}
}

// tenant is a namespace in which the sentence holds, in a time zone of its own.
type tenant struct {
	zone    *time.Location
	limits  map[string]*charge          // by entity and name
	usd     map[string]map[string]int64 // what the team spent, by month and resource
	lims    []*weir.Limiter
	refused map[string]int                             // by name of the limit
	friday  time.Time                                  // when user-123 has what everybody has
	later   bool                                       // it has passed
	her     [2]struct{ tokens, requests, refused int } // of user-123, before and after
}

// pass gives user-123 what everybody has once it is Friday: what she has spent counts at most as one whole day.
func (n *tenant) pass(now time.Time) {
	if n.later || now.Before(n.friday) {
		return
	}
	n.later = true
	was := n.limits["user-123 tpd"].quota
	n.day("user-123", 1_000_000)
	is := n.limits["user-123 tpd"].quota
	today := is.key(now, n.zone)
	is.spent[today] = min(was.spent[today], is.amount)
	n.minute("user-123", 60)
}

// book notes what the team has spent, or given back within the month.
func (n *tenant) book(h *holding, now time.Time, usd int64) {
	month := now.In(n.zone).Format("2006-01")
	if !h.team || month != h.at.In(n.zone).Format("2006-01") {
		return
	}
	if n.usd[month] == nil {
		n.usd[month] = make(map[string]int64)
	}
	n.usd[month][h.resource] += usd
}

func (n *tenant) month(entity string, amount int64) {
	n.limits[entity+" usd"] = &charge{quota: &quota{amount: amount, layout: "2006-01", months: true, spent: map[string]int64{}}}
}

func (n *tenant) day(entity string, amount int64) {
	n.limits[entity+" tpd"] = &charge{quota: &quota{amount: amount, layout: "2006-01-02", spent: map[string]int64{}}}
}

func (n *tenant) minute(entity string, amount int64) {
	n.limits[entity+" rpm"] = &charge{rate: &rate{amount: amount, each: time.Minute / time.Duration(1000*amount)}}
}
