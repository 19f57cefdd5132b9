package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

func httpRows() []row {
	return []row{{
		name: fmt.Sprintf("HTTP: POST /v1/acquire, 2 limits, %d connections", callers), unit: perSecond,
		workers: callers,
		contenders: []contender{
			{name: "weir", setup: serveWeir},
			{name: "bare server, same JSON", setup: serveFloor},
		},
		target: target{ratio: 0.8},
	}}
}

func serveWeir(e *harness.Env) (harness.Work, error) {
	h, err := weirHandler(e)
	if err != nil {
		return nil, err
	}
	return post(e, h)
}

// serveFloor returns weir's answer without deciding, to measure the cost of HTTP itself.
func serveFloor(e *harness.Env) (harness.Work, error) {
	h, err := weirHandler(e)
	if err != nil {
		return nil, err
	}
	addr, err := serve(e, h)
	if err != nil {
		return nil, err
	}
	c, err := dial(e, addr)
	if err != nil {
		return nil, err
	}
	answer, err := c.post(nil)
	if err != nil {
		return nil, err
	}
	return post(e, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
}

func weirHandler(e *harness.Env) (http.Handler, error) {
	lim, err := inprocess.Limiter(e, memory.New(nil), weir.Config{},
		weir.PerSecond("rpm", 1_000_000).WithBurst(weir.MaxTokens),
		weir.PerSecond("tpm", 1_000_000).WithBurst(weir.MaxTokens))
	if err != nil {
		return nil, err
	}
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		return nil, err
	}
	return s.Handler(), nil
}

// post has each worker send requests on a connection of its own, which stays open.
func post(e *harness.Env, h http.Handler) (harness.Work, error) {
	addr, err := serve(e, h)
	if err != nil {
		return nil, err
	}
	var clients [callers]*client
	for i := range clients {
		if clients[i], err = dial(e, addr); err != nil {
			return nil, err
		}
	}
	return func(worker, n int) (int, error) {
		c := clients[worker]
		for range n {
			var err error
			if c.body, err = c.post(c.body[:0]); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, nil
}

func serve(e *harness.Env, h http.Handler) (addr string, err error) {
	var config net.ListenConfig
	ln, err := config.Listen(e.Ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	e.Defer(func() error {
		err := s.Shutdown(context.WithoutCancel(e.Ctx))
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return ln.Addr().String(), nil
}

// client is a minimal HTTP client, because it runs on the same processors as what is measured.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

var request = func() []byte {
	const body = `{"entity":"key-alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":500}}`
	return fmt.Appendf(
		nil,
		"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n\r\n%s",
		len(body), body,
	)
}()

func dial(e *harness.Env, addr string) (*client, error) {
	var d net.Dialer
	conn, err := d.DialContext(e.Ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	e.Defer(conn.Close)
	return &client{conn: conn, in: bufio.NewReaderSize(conn, 8<<10)}, nil
}

// post sends the request and appends the body of the answer to buf.
func (c *client) post(buf []byte) ([]byte, error) {
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return nil, fmt.Errorf("answered %q", line)
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, errors.New("the answer has no length")
	}
	for len(buf) < length {
		buf = append(buf, 0)
	}
	_, err := io.ReadFull(c.in, buf[:length])
	return buf[:length], err
}
