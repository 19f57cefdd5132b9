package notify

import "maps"

// Counted returns how many events wait, and how many of each namespace by the webhook's own count.
func (w *Webhook) Counted() (all int, of map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue), maps.Clone(w.waiting)
}
