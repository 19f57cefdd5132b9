package dynamoproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/go-json-experiment/json"
)

// exchange sends a governed request, and returns the answer: for the governor as the SDK does, for the client in the
// call.
func (p *Proxy) exchange(ctx context.Context, _ middleware.DeserializeInput, _ middleware.DeserializeHandler) (
	out middleware.DeserializeOutput, md middleware.Metadata, err error,
) {
	out.Result, err = p.governed(ctx, callOf(ctx))
	return out, md, err
}

func (p *Proxy) governed(ctx context.Context, c *call) (any, error) {
	body, changed := c.body, c.level != c.requested && valid(c.requested)
	if changed {
		var err error
		if body, err = withReport(c.body, c.level); err != nil {
			return nil, malformed(err)
		}
	}
	resp, err := p.send(ctx, c, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := read(io.LimitReader(resp.Body, maxAnswer+1), resp.ContentLength)
	if err != nil {
		return nil, err
	}
	text, err := plain(resp, raw)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		c.answered(resp, raw)
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: readError(text)}
	}
	out := operations[c.op].output()
	if err := json.Unmarshal(text, out, answers); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if !changed {
		c.answered(resp, raw)
		return out, nil
	}
	if text, err = withoutReport(text, c.requested); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	resp.Header.Del("Content-Encoding") // a client that accepts gzip accepts plain text, too
	if resp.Header.Get(checksum) != "" {
		resp.Header.Set(checksum, strconv.FormatUint(uint64(crc32.ChecksumIEEE(text)), 10))
	}
	c.answered(resp, text)
	return out, nil
}

// checksum is the header with the CRC-32 of the answer as it is sent, which SDKs verify.
const checksum = "X-Amz-Crc32"

// answered makes an answer with a body that of the call.
func (c *call) answered(resp *http.Response, body []byte) {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	resp.TransferEncoding = nil
	c.answer = resp
}

// send signs a request and sends it.
func (p *Proxy) send(ctx context.Context, c *call, body []byte) (*http.Response, error) {
	r := c.r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	keys, err := p.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("the proxy's own credentials: %w", err)
	}
	if err := p.signer.SignHTTP(ctx, keys, r, hash(body), service, p.cfg.Region, time.Now()); err != nil {
		return nil, err
	}
	return p.cfg.Transport.RoundTrip(r)
}

const service = "dynamodb"

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// reported returns the member of a request of the SDK with that name.
func reported(input any) types.ReturnConsumedCapacity {
	v := reflect.ValueOf(input).Elem().FieldByName(reportMember)
	return types.ReturnConsumedCapacity(v.String())
}

// valid reports whether DynamoDB accepts a level; "" is NONE.
func valid(level types.ReturnConsumedCapacity) bool {
	return level == "" || slices.Contains(level.Values(), level)
}

// read reads a body, which it expects to have a size, or -1.
func read(from io.Reader, size int64) ([]byte, error) {
	var b bytes.Buffer
	if size > 0 && size < maxAnswer {
		b.Grow(int(size) + bytes.MinRead)
	}
	_, err := b.ReadFrom(from)
	if err == nil && b.Len() > maxAnswer {
		err = errLarge
	}
	return b.Bytes(), err
}

var errLarge = errors.New("the answer is larger than any of DynamoDB's")

// plain returns the text of an answer, which may be compressed.
func plain(resp *http.Response, raw []byte) ([]byte, error) {
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return raw, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return read(io.LimitReader(z, maxAnswer+1), -1)
}
