package conns

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
)

// unit is what a budget is handed out in, in bytes.
const unit = 16 << 10

// Budget is a number of bytes that unfinished requests may hold in memory. A principal may hold up to three times as
// many as are free; see [admission.Slots].
type Budget struct{ units *admission.Slots }

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int) *Budget { return &Budget{admission.New(bytes / unit)} }

// Hold is what a request or a connection holds of a budget. It is safe for concurrent use.
type Hold struct {
	*Budget

	// Free are bytes that are not counted.
	Free int

	mu      sync.Mutex
	who     string // for whom units are taken
	size    int    // bytes
	taken   int    // units
	pending int    // units for which calls of Add wait
	closed  bool
}

// bytes returns how many bytes are held.
func (h *Hold) bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.size
}

func (h *Hold) units() int { return max(0, h.size-h.Free+unit-1) / unit }

// Add adds n bytes for a principal. It waits for them until ctx is done or patience has passed, and then reports false:
// the bytes are added, but not counted.
func (h *Hold) Add(ctx context.Context, who string, n int, patience time.Duration) bool {
	return h.add(ctx, who, n, patience, func() {})
}

// add calls waits before it waits.
func (h *Hold) add(ctx context.Context, who string, n int, patience time.Duration, waits func()) bool {
	h.mu.Lock()
	h.size += n
	if h.taken+h.pending == 0 {
		h.who = who
	}
	who = h.who
	need := h.units() - h.taken - h.pending
	if need <= 0 {
		h.mu.Unlock()
		return true
	}
	h.pending += need
	h.mu.Unlock()
	got := h.Budget.units.Take(ctx, who, need, 0)
	if got == 0 && patience > 0 {
		waits()
		got = h.Budget.units.Take(ctx, who, need, patience)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending -= need
	h.taken += got
	h.trim()
	return got == need
}

// Sub removes n bytes. It adds them if n is negative: without waiting, and without counting them before the next Add.
func (h *Hold) Sub(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size -= n
	h.trim()
}

// Reset removes all bytes.
func (h *Hold) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = 0
	h.trim()
}

// Close removes all bytes, including those that are added later.
func (h *Hold) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.trim()
}

// trim returns the units that are not needed.
func (h *Hold) trim() {
	need := h.units()
	if h.closed {
		need = 0
	}
	if more := h.taken - need; more > 0 {
		h.taken = need
		h.Budget.units.Return(h.who, more)
	}
}
