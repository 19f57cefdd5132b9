// Package s3put writes to an archive in S3, and no more: the SDK's client of S3 is a tenth of what a function's package
// may have, for one call.
package s3put

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/weirlimits/weir/internal/archive"
)

// Bucket is a bucket that is only written to, which needs s3:PutObject.
type Bucket struct {
	cfg  aws.Config
	name string
}

var _ archive.Putter = (*Bucket)(nil)

// New returns a bucket of the region of cfg, whose credentials sign, or behind its BaseEndpoint.
func New(cfg aws.Config, name string) *Bucket { return &Bucket{cfg, name} }

const (
	tries   = 4
	timeout = 10 * time.Second // of a try
)

var client = &http.Client{Timeout: timeout}

// Put implements archive.Putter. What S3 is too busy for is tried again.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) error {
	for try, wait := 1, 100*time.Millisecond; ; try, wait = try+1, 2*wait {
		again, err := b.put(ctx, name, content)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("put s3://%s/%s: %w", b.name, name, err)
		if !again || try == tries {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

func (b *Bucket) put(ctx context.Context, name string, content []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "", bytes.NewReader(content))
	if err != nil {
		return false, err
	}
	if req.URL, err = b.address(name); err != nil {
		return false, err
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	req.Host = req.URL.Host
	req.Header.Set("Content-Type", "application/gzip")
	req.Header.Set("X-Amz-Content-Sha256", hash)
	who, err := b.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // S3 takes paths as they are
	if err := signer.SignHTTP(ctx, who, req, hash, "s3", b.cfg.Region, time.Now()); err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what there is of it
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return false, nil
}

// address returns where an object is, escaped as signatures of S3 want it. A bucket with dots in its name has no host
// whose certificate would fit.
func (b *Bucket) address(name string) (*url.URL, error) {
	domain := "amazonaws.com"
	if strings.HasPrefix(b.cfg.Region, "cn-") {
		domain += ".cn"
	}
	u := &url.URL{Scheme: "https", Host: b.name + ".s3." + b.cfg.Region + "." + domain, Path: "/" + name}
	switch endpoint := aws.ToString(b.cfg.BaseEndpoint); {
	case endpoint != "":
		base, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		u.Scheme, u.Host, u.Path = base.Scheme, base.Host, "/"+b.name+u.Path
	case strings.Contains(b.name, "."):
		u.Host, u.Path = "s3."+b.cfg.Region+"."+domain, "/"+b.name+u.Path
	}
	u.RawPath = httpbinding.EscapePath(u.Path, false)
	return u, nil
}
