package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/notify"
)

// Event is the part of an event that a receiver reads, as in docs/operate/usage.md.
type Event struct {
	ID, Kind, Namespace, Entity, Resource, Limit string
	Percent                                      int
}

// receive is the receiver of docs/operate/usage.md.
func receive(secret []byte, take func(Event)) http.HandlerFunc {
	var seen sync.Map // a fleet's duplicates; a real receiver forgets ids older than a day
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		stamp := r.Header.Get("Weir-Timestamp")
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(stamp + "." + string(body)))
		want := "v1=" + hex.EncodeToString(mac.Sum(nil))
		at, _ := strconv.ParseInt(stamp, 10, 64)
		if !hmac.Equal([]byte(want), []byte(r.Header.Get("Weir-Signature"))) || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
			http.Error(w, "bad signature", http.StatusUnauthorized)
			return
		}
		var e Event
		if err := json.Unmarshal(body, &e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, again := seen.LoadOrStore(e.ID, true); !again {
			take(e)
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// The format is a promise: existing receivers must keep working.
func TestFormat(t *testing.T) {
	t.Parallel()
	e := near("0123456789abcdef0123456789abcdef")
	want := `{"id":"0123456789abcdef0123456789abcdef","type":"near_limit","kind":"threshold","namespace":"default",` +
		`"entity":"alice","resource":"gpt-4","limit":"tpm","percent":80,"used":81,"of":100,"left":19,` +
		`"window":{"start":"2026-03-01T12:00:00Z","seconds":3600},"at":"2026-03-01T12:05:00.5Z"}`
	if got := string(notify.Body(&e)); got != want {
		t.Errorf("body\n%s, want\n%s", got, want)
	}
	// echo -n "1772366700.$body" | openssl dgst -sha256 -hmac "a secret of some length"
	signature := "v1=705e5e789c438a05732913165d0768b610e9cd9bb0752d1e3f61cb4124a1da67"
	if got := notify.Sign(secret, "1772366700", []byte(want)); got != signature {
		t.Errorf("signature %s, want %s", got, signature)
	}
	e.Entity, e.Shadow, e.Override, e.Kind = "<a&\"b\">", true, true, weir.NearRefused
	want = `"entity":"<a&\"b\">","resource":"gpt-4","limit":"tpm","override":true,"shadow":true,`
	if got := string(notify.Body(&e)); !json.Valid([]byte(got)) || !strings.Contains(got, want) || !strings.Contains(got, `"kind":"refused"`) {
		t.Errorf("body %s", got)
	}
}
