package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// answer is the answer to a request. It belongs to the connection.
type answer struct {
	status int
	date   string // the Date header, or ""
	sum    []byte // the header with the body's checksum; nil: none
	body   []byte
	err    error // why the answer broke off after what is in body
	last   bool  // the last answer of its connection

	head []byte         // the head, as it arrived, if it is plain
	resp *http.Response // the head if it is not plain; without a body
}

// read reads a plain head, which is the usual kind: it has arrived completely, says how long the body is, and does not
// ask for the body or the connection to be handled differently. read makes room for the body, which comes next.
func (a *answer) read(b []byte) bool {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) || end < len("HTTP/1.1 200 ") || b[12] != ' ' {
		return false
	}
	status, err := strconv.Atoi(string(b[9:12]))
	if err != nil || status != http.StatusOK && status != http.StatusBadRequest {
		return false
	}
	head := b[:end+2]
	length, date := -1, []byte(nil)
	for at := bytes.IndexByte(head, '\n') + 1; at < len(head); {
		line := head[at:]
		line = line[:bytes.IndexByte(line, '\n')]
		at += len(line) + 1
		name, value, ok := bytes.Cut(line, []byte(": "))
		if !ok || len(value) == 0 || value[len(value)-1] != '\r' || !token(name) {
			return false
		}
		value = value[:len(value)-1]
		switch {
		case is(name, "content-length"):
			n, err := strconv.ParseUint(string(value), 10, 31)
			if err != nil || n > maxPlain || length >= 0 {
				return false
			}
			length = int(n)
		case is(name, "date"):
			date = value
		case is(name, "x-amz-crc32"):
			a.sum = value
		case is(name, "connection") && !is(value, "keep-alive"), is(name, "transfer-encoding"), is(name, "content-encoding"),
			is(name, "trailer"), is(name, "age"), is(name, "x-amzn-errortype"):
			a.sum = nil
			return false
		}
	}
	if length < 0 {
		a.sum = nil
		return false
	}
	a.status = status
	if string(date) != a.date {
		a.date = string(date)
	}
	a.head = append(append(a.head, head...), "\r\n"...)
	a.sum = bytes.Clone(a.sum) // the buffer that it is a part of is about to be overwritten
	a.body = slices.Grow(a.body, length)[:length]
	return true
}

// token reports whether a header can have this name.
func token(name []byte) bool {
	for _, c := range name {
		if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return len(name) > 0
}

// is compares names, ignoring case.
func is(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// readAny reads an answer of any kind. The error concerns the head. If the body breaks off, the answer says so.
func (a *answer) readAny(in *bufio.Reader) error {
	for range 5 { // informational responses may come before the answer
		resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // it is read to its end, and that is all that Close does
		if err != nil {
			return err
		}
		if a.resp = resp; resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	a.status, a.last, a.date = a.resp.StatusCode, a.resp.Close, a.resp.Header.Get("Date")
	if a.status < 200 { // it is unknown what follows
		a.last = true
		return nil
	}
	body := bytes.NewBuffer(a.body)
	_, a.err = body.ReadFrom(a.resp.Body)
	a.body, a.resp.Body = body.Bytes(), http.NoBody
	return nil
}

// response returns an answer as net/http represents it, with its body.
func (a *answer) response() (*http.Response, error) {
	resp := a.resp
	if resp == nil {
		var err error
		if resp, err = http.ReadResponse(bufio.NewReader(bytes.NewReader(a.head)), nil); err != nil {
			return nil, err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(a.body))
	if a.err != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(a.body), broken{a.err}))
	}
	return resp, nil
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
