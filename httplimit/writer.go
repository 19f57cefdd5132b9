package httplimit

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
)

// recorder records what a handler answers. It supports everything that the server's writer does: what handlers look for
// themselves directly, the rest through http.ResponseController.
type recorder struct {
	http.ResponseWriter
	status int // 0 if not answered yet
	bytes  int64
}

// Unwrap is used by http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status) // panics at an invalid status, which is not an answer
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

func (w *recorder) answered() {
	w.status = cmp.Or(w.status, http.StatusOK)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	w.answered()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString implements io.StringWriter.
func (w *recorder) WriteString(s string) (int, error) {
	w.answered()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that a file is sent without being copied.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	w.answered()
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// FlushError is used by http.ResponseController.
func (w *recorder) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.answered()
	}
	return err
}

// Flush implements http.Flusher. If the server's writer cannot flush, it does nothing.
func (w *recorder) Flush() { _ = w.FlushError() }

// Hijack implements http.Hijacker. If the connection cannot be taken over, it returns an error.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
