package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// run sends events, one at a time, until the webhook is closed and all are sent, or until it must stop.
func (w *Webhook) run() {
	defer close(w.done)
	for {
		d, wait, more := w.next()
		if d != nil {
			w.deliver(d)
			continue
		}
		if !more {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-w.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// next removes and returns the next event to send. If none is due, it returns how long to wait, and whether to wait at
// all.
func (w *Webhook) next() (d *delivery, wait time.Duration, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		w.stats.GivenUp += uint64(len(w.queue))
		w.queue = nil
		clear(w.waiting)
	}
	if len(w.queue) == 0 {
		return nil, time.Hour, !w.closed
	}
	at := 0
	for i, q := range w.queue {
		if q.due.Before(w.queue[at].due) {
			at = i
		}
	}
	due := w.queue[at].due
	if due.Before(w.paused) {
		due = w.paused
	}
	if wait = time.Until(due); wait > 0 {
		return nil, wait, true
	}
	return w.remove(at), 0, true
}

// deliver sends an event once, and queues it again if a retry makes sense.
func (w *Webhook) deliver(d *delivery) {
	d.attempts++
	a := w.post(d)
	w.mu.Lock()
	lost, dropped := "", uint64(0) // why the event is lost, if it is
	switch {
	case a.taken:
		w.stats.Delivered++
	case !a.again:
		w.stats.Rejected++
		lost = "rejected"
	case w.again(d, &a):
		dropped = w.trim(time.Now())
	default:
		w.stats.GivenUp++
		lost = "given up"
	}
	w.mu.Unlock()
	if lost != "" {
		w.lost(lost, d, a.err)
	}
	w.warn(dropped)
}

// again puts an event back into the queue, unless it must be given up. The webhook is locked.
func (w *Webhook) again(d *delivery, a *answer) bool {
	now := time.Now()
	d.due = now.Add(max(a.after, w.cfg.Jitter(min(longestPause, firstPause<<(d.attempts-1)))))
	if until := now.Add(min(a.after, MaxAge)); until.After(w.paused) && !w.closed {
		w.paused = until
	}
	if w.closed || d.attempts >= MaxAttempts || d.due.Sub(d.born) > MaxAge {
		return false
	}
	w.put(d)
	return true
}

func (w *Webhook) lost(why string, d *delivery, err error) {
	w.cfg.Log.Warn("webhook: a near-limit event was not delivered", slog.String("why", why),
		slog.String("host", w.host), d.what,
		slog.String("id", d.id), slog.Int("attempts", d.attempts), slog.Any("error", err))
}

// answer is the outcome of an attempt.
type answer struct {
	taken bool
	again bool          // a retry makes sense
	after time.Duration // minimum time before a retry
	err   error
}

// post sends an event once.
func (w *Webhook) post(d *delivery) answer {
	ctx, cancel := context.WithTimeout(w.ctx, attemptTimeout)
	defer cancel()
	now := time.Now()
	req, err := newRequest(ctx, w.cfg.URL, w.cfg.Secret, d.id, d.body, now)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("User-Agent", w.cfg.UserAgent)
	resp, err := w.cfg.Client.Do(req)
	if err != nil {
		if in, ok := errors.AsType[*url.Error](err); ok {
			err = in.Err // without the URL, whose path may be secret
		}
		return answer{again: true, err: err}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be reused
	a := answer{err: fmt.Errorf("the receiver answered %s", resp.Status)}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return answer{taken: true}
	case code == http.StatusTooManyRequests:
		a.again, a.after = true, retryAfter(resp.Header.Get("Retry-After"), now)
	case code >= 500:
		a.again = true
	}
	return a
}
