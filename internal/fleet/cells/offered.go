package cells

import (
	"sync"
	"time"
)

// slots is the number of parts of a window of two half-lives: a change counts for half after one half-life, and in full
// after two.
const slots = 16

// offers counts recently offered requests, by namespace. It is bounded.
type offers struct {
	mu     sync.Mutex
	counts map[string]*counts
	at     time.Time // when the current slot began
	began  time.Time
	slot   int
}

type counts [slots]int64

// maxOffers is how many namespaces an instance counts.
const maxOffers = 1000

// count counts a request.
func (o *offers) count(namespace string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.counts[namespace]
	if c == nil {
		if len(o.counts) >= maxOffers {
			return
		}
		if o.counts == nil {
			o.counts = make(map[string]*counts)
		}
		c = new(counts)
		o.counts[namespace] = c
	}
	c[o.slot]++
}

// rates returns thousandths of a request per second over the last two half-lives, or since the first call.
func (o *offers) rates(halfLife time.Duration, now time.Time) map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		o.began, o.at = now, now
	}
	length := 2 * halfLife / slots
	for range min(slots, int(now.Sub(o.at)/length)) {
		o.slot = (o.slot + 1) % slots
		for namespace, c := range o.counts {
			c[o.slot] = 0
			if *c == (counts{}) {
				delete(o.counts, namespace)
			}
		}
	}
	if passed := now.Sub(o.at); passed >= length {
		o.at = now.Add(-passed % length)
	}
	over := min(now.Sub(o.began), (slots-1)*length+now.Sub(o.at))
	rates := make(map[string]int64, len(o.counts))
	for namespace, c := range o.counts {
		var n int64
		for _, of := range c {
			n += of
		}
		rates[namespace] = int64(float64(n*1000) / max(over, time.Second).Seconds())
	}
	return rates
}
