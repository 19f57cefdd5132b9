package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
)

// event is the body of a request.
type event struct {
	ID        string             `json:"id"`
	Type      string             `json:"type"` // near_limit
	Kind      weir.NearLimitKind `json:"kind"`
	Namespace string             `json:"namespace"`
	Entity    string             `json:"entity"`
	Resource  string             `json:"resource"`
	Limit     string             `json:"limit"`
	Override  bool               `json:"override,omitempty"`
	Shadow    bool               `json:"shadow,omitempty"`
	Percent   int                `json:"percent"`
	Used      int64              `json:"used"`
	Of        int64              `json:"of"`
	Left      int64              `json:"left"`
	Window    window             `json:"window"`
	At        time.Time          `json:"at"`
}

type window struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
}

// Body returns the body that is sent for an event.
func Body(e *weir.NearLimitEvent) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(event{
		ID: e.ID, Type: "near_limit", Kind: e.Kind, Namespace: e.Namespace, Entity: e.Entity, Resource: e.Resource,
		Limit: e.Limit, Override: e.Override, Shadow: e.Shadow,
		Percent: e.Percent, Used: e.Used, Of: e.Of, Left: e.Left,
		Window: window{e.WindowStart.UTC(), e.WindowLength.Seconds()}, At: e.At.UTC(),
	})
	if err != nil {
		panic(err) // text, numbers and times always encode
	}
	return record.VisibleJSON(bytes.TrimRight(b.Bytes(), "\n"))
}

// Sign returns the signature of a body sent at the given timestamp, in seconds since 1970.
func Sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp))
	mac.Write([]byte("."))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

func newRequest(
	ctx context.Context, url string, secret []byte, id string, body []byte, now time.Time,
) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Weir-Event-Id", id)
	req.Header.Set("Weir-Timestamp", timestamp)
	req.Header.Set("Weir-Signature", Sign(secret, timestamp, body))
	return req, nil
}

// retryAfter returns the duration that a Retry-After header gives in seconds or as a date, or 0 if it is not usable.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// attrOf returns an event as a log attribute.
func attrOf(e *weir.NearLimitEvent) slog.Attr {
	attrs := []any{
		slog.String("kind", string(e.Kind)), slog.String("namespace", e.Namespace), slog.String("entity", e.Entity),
		slog.String("resource", e.Resource), slog.String("limit", e.Limit),
		slog.Int("percent", e.Percent), slog.Int64("used", e.Used), slog.Int64("of", e.Of),
		slog.Int64("left", e.Left),
	}
	if e.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	return slog.Group("event", attrs...)
}

// Logged returns a function that logs near-limit events, for [weir.Observer].
func Logged(log *slog.Logger) func(context.Context, weir.NearLimitEvent) {
	return func(ctx context.Context, e weir.NearLimitEvent) {
		log.LogAttrs(ctx, slog.LevelInfo, "near a limit", attrOf(&e), slog.String("id", e.ID))
	}
}
