package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"
	"unicode"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// events reads the server-sent events of a URL.
type events struct {
	url, token string
	via        http.RoundTripper // nil is the default
}

// arrival is an event, or the reason why there are none until the next attempt.
type arrival struct {
	data    []byte
	trouble error
	again   time.Duration
}

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 15 * time.Second
	// silence is how long a connection may be silent before it is given up. Servers send something every 15 s.
	silence = 40 * time.Second
)

// run delivers events until ctx ends, the server refuses for good or, if again is false, the connection fails. If a
// connection ends after an event, run silently opens a new one, because servers end streams now and then.
func (e events) run(ctx context.Context, again bool, to chan<- arrival) error {
	for pause := firstPause; ; {
		some, err := e.listen(ctx, to)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an interrupt is the normal end of a watch
		}
		if some {
			pause = firstPause
		}
		var no *refusedError
		switch {
		case err == nil && some:
			if !sleep(ctx, rand.N(firstPause)) {
				return nil
			}
			continue
		case err == nil:
			err = kit.WithCode(errors.New("the server closed the connection without an event"), kit.Unavailable)
		case errors.As(err, &no) && no.final():
			return err
		}
		if !again {
			return err
		}
		wait := pause/2 + rand.N(pause/2) // jitter, so that clients cut off together do not all reconnect together
		select {
		case to <- arrival{trouble: err, again: wait}:
		case <-ctx.Done():
			return nil
		}
		if !sleep(ctx, wait) {
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

// sleep waits for d and returns true, or returns false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen delivers the events of one connection. some reports whether there were any.
func (e events) listen(ctx context.Context, to chan<- arrival) (some bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the server was silent for %s", silence)) })
	defer quiet.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, http.NoBody)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	res, err := secret.Client(0, e.via).Do(req) // without a timeout: see silence
	if err != nil {
		return false, plainly(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, refusalOf(res)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	var data []byte
	for lines.Scan() {
		quiet.Reset(silence)
		line := lines.Bytes()
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		select {
		case to <- arrival{data: data}:
			some, data = true, nil
		case <-ctx.Done():
			return some, plainly(ctx, ctx.Err())
		}
	}
	if err := lines.Err(); err != nil {
		return some, plainly(ctx, err)
	}
	return some, nil
}

// plainly returns why a connection failed, without the URL, which the user typed.
func plainly(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		err = fmt.Errorf("no answer from %s: %w", op.Addr, op.Err)
	}
	return kit.WithCode(err, kit.Unavailable)
}

// refusedError is an answer that is not a stream.
type refusedError struct {
	status int
	detail string
}

// Error returns the server's status and detail.
func (e *refusedError) Error() string {
	hint := ""
	switch e.status {
	case http.StatusUnauthorized:
		hint = ": set WEIR_TOKEN"
	case http.StatusNotFound:
		hint = ": is it a weir server of this version?"
	}
	return fmt.Sprintf("the server answers %d, %s%s", e.status, e.detail, hint)
}

// final reports whether a retry would be useless.
func (e *refusedError) final() bool {
	return e.status < 500 && e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout
}

func refusalOf(res *http.Response) error {
	var p struct{ Detail string }
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		p.Detail = http.StatusText(res.StatusCode)
	}
	err := error(&refusedError{res.StatusCode, p.Detail})
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusUnprocessableEntity: // no such namespace, or no limits apply
		return kit.WithCode(err, kit.NotFound)
	case http.StatusBadRequest:
		return kit.WithCode(err, kit.WrongUsage)
	}
	if res.StatusCode >= 500 {
		return kit.WithCode(errors.Join(err, weir.ErrUnavailable), kit.Unavailable)
	}
	return err
}

// jsonLine writes JSON on one line, with control characters escaped so that they cannot affect a terminal.
func jsonLine(data []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte("null") // cannot happen: it was parsed before
	}
	line := b.Bytes()
	if bytes.IndexFunc(line, unicode.IsControl) < 0 {
		return line
	}
	var out []byte
	for _, r := range string(line) {
		if unicode.IsControl(r) { // below U+0020 it would not be JSON
			out = fmt.Appendf(out, `\u%04x`, r)
			continue
		}
		out = append(out, string(r)...)
	}
	return out
}
