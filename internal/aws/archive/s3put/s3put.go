// Package s3put writes to an archive in S3, and does nothing else: for this one call, the SDK's S3 client would take
// a tenth of the size limit of the function's package.
package s3put

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
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
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/aws/archive"
)

// Bucket is a write-only bucket. It needs s3:PutObject.
type Bucket struct {
	cfg  aws.Config
	name string
}

var _ archive.Putter = (*Bucket)(nil)

// New returns a bucket in the region of cfg, or behind its BaseEndpoint. The credentials of cfg sign requests.
func New(cfg aws.Config, name string) *Bucket { return &Bucket{cfg, name} }

const (
	tries   = 4
	timeout = 10 * time.Second // per try
)

var client = secret.Client(timeout, nil) // the token of temporary credentials is in a header of its own

// Put implements archive.Putter. It retries when S3 is too busy.
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
		if smithytime.SleepWithContext(ctx, wait) != nil {
			return err
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
	req.Header.Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:])) // a locked bucket requires one
	who, err := b.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // S3 signs paths unescaped
	if err := signer.SignHTTP(ctx, who, req, hash, "s3", b.cfg.Region, time.Now()); err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // whatever can be read
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500 ||
			resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return false, nil
}

// address returns the URL of an object, escaped as S3 signatures require. A bucket whose name contains dots is
// addressed by path, because no certificate would match its host.
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
