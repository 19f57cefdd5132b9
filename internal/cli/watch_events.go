package cli

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
)

// events are the server-sent events of a URL.
type events struct{ url, token string }

// arrival is an event, or why there are none until the next try.
type arrival struct {
	data    []byte
	trouble error
	again   time.Duration
}

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 15 * time.Second
	// silence is after what time without a sign of life a connection is given up. Servers give one every 15 s.
	silence = 40 * time.Second
)

// run hands over events until ctx ends, the server refuses for good, or with again false the connection fails. A
// connection that ends after an event is made anew without a word: servers end streams now and then.
func (e events) run(ctx context.Context, again bool, to chan<- arrival) error {
	for pause := firstPause; ; {
		some, err := e.listen(ctx, to)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // this is how a watch ends
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
			err = codeError{errors.New("the server said nothing"), unavailable}
		case errors.As(err, &no) && no.final():
			return err
		}
		if !again {
			return err
		}
		wait := pause/2 + rand.N(pause/2) // so that those who were cut off together do not come back together
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

// sleep reports whether ctx has not ended meanwhile.
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

// listen hands over the events of one connection. some reports that there were any.
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
	res, err := http.DefaultClient.Do(req)
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

// plainly says why a connection failed, without the URL that everybody knows.
func plainly(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = fmt.Errorf("%s: %w", op.Addr, op.Err)
	}
	return codeError{err, unavailable}
}

// refusedError is an answer that is no stream.
type refusedError struct {
	status int
	detail string
}

// Error says what the server said.
func (e *refusedError) Error() string {
	hint := ""
	switch e.status {
	case http.StatusUnauthorized:
		hint = ": set WEIR_TOKEN"
	case http.StatusNotFound:
		hint = ": is it a weir server, of this version?"
	}
	return fmt.Sprintf("the server answers %d, %s%s", e.status, e.detail, hint)
}

// final reports whether to ask again is no use.
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
	case http.StatusNotFound, http.StatusUnprocessableEntity: // no such namespace, no limits apply
		return codeError{err, notFound}
	case http.StatusBadRequest:
		return codeError{err, wrongUsage}
	}
	if res.StatusCode >= 500 {
		return codeError{errors.Join(err, weir.ErrUnavailable), unavailable}
	}
	return err
}

// jsonLine writes JSON on one line, and what would move a terminal's cursor as an escape.
func jsonLine(data []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte("null") // it was read before
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
