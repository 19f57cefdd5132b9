// Package s3bucket implements an archive in S3.
package s3bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir/internal/aws/archive"
)

// API is the part of an S3 client that a [Bucket] uses. It needs these permissions: s3:PutObject to write;
// s3:GetObject, and s3:ListBucket on the bucket, to read.
type API interface {
	// PutObject is the S3 client's, as are the others.
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	// To read.
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	// In pages.
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Bucket holds the objects of an S3 bucket below a prefix, which may be "".
type Bucket struct {
	api          API
	name, prefix string
}

var _ archive.Bucket = (*Bucket)(nil)

// New returns the objects below prefix in a bucket. It does not check access: the first write does.
func New(api API, name, prefix string) *Bucket {
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &Bucket{api, name, prefix}
}

func (b *Bucket) wrap(op, name string, err error) error {
	return fmt.Errorf("%s s3://%s/%s%s: %w", op, b.name, b.prefix, name, err)
}

// Put implements archive.Putter.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) error {
	_, err := b.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: aws.String(b.prefix + name), Body: bytes.NewReader(content),
		ContentType: aws.String("application/gzip"),
	})
	if err != nil {
		return b.wrap("put", name, err)
	}
	return nil
}

// List implements archive.Bucket.
func (b *Bucket) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	pages := s3.NewListObjectsV2Paginator(b.api, &s3.ListObjectsV2Input{
		Bucket: &b.name, Prefix: aws.String(b.prefix + prefix),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.wrap("list", prefix, err)
		}
		for _, o := range page.Contents {
			names = append(names, strings.TrimPrefix(aws.ToString(o.Key), b.prefix))
		}
	}
	return names, nil
}

// maxObject limits how much of an object is read, since it may be anything.
const maxObject = 1 << 30

// Get implements archive.Bucket.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + name)})
	if err != nil {
		return nil, b.wrap("get", name, err)
	}
	defer out.Body.Close()
	content, err := io.ReadAll(io.LimitReader(out.Body, maxObject))
	if err != nil {
		return nil, b.wrap("get", name, err)
	}
	return content, nil
}
