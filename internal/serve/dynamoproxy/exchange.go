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

// finalize signs a governed request, with the level that the governor wants. The governor counts what fails from then
// on as sent.
func (p *Proxy) finalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
	out middleware.FinalizeOutput, md middleware.Metadata, err error,
) {
	c := callOf(ctx)
	body := c.body
	if c.changed() {
		if body, err = withReport(c.body, c.level); err != nil {
			return out, md, malformed(err)
		}
	}
	if err := p.sign(ctx, c, body); err != nil {
		return out, md, err
	}
	return next.HandleFinalize(ctx, in)
}

// changed reports whether the governor wants the consumption reported in another level than the client.
func (c *call) changed() bool { return c.level != c.requested && valid(c.requested) }

// exchange sends a governed request, and returns the answer: for the governor as the SDK does, for the client in the
// call.
func (p *Proxy) exchange(ctx context.Context, _ middleware.DeserializeInput, _ middleware.DeserializeHandler) (
	out middleware.DeserializeOutput, md middleware.Metadata, err error,
) {
	out.Result, err = p.governed(callOf(ctx))
	return out, md, err
}

func (p *Proxy) governed(c *call) (any, error) {
	resp, err := p.cfg.Transport.RoundTrip(c.r)
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
	if !c.changed() {
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

// sign makes the call's request one with a body, signed.
func (p *Proxy) sign(ctx context.Context, c *call, body []byte) error {
	r := c.r.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	keys, err := p.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("the proxy's own credentials: %w", err)
	}
	c.r = r
	return p.signer.SignHTTP(ctx, keys, r, hash(body), service, p.cfg.Region, time.Now())
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
