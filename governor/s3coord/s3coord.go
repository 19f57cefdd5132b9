// Package s3coord keeps a fleet's records as objects in S3, with conditional writes (If-None-Match, If-Match). It needs
// nothing else: no table, no server, no synchronized clocks.
package s3coord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir/internal/fleet"
)

// API is the part of an S3 client that a [Coordinator] needs. The client needs these permissions: s3:GetObject,
// s3:PutObject and s3:DeleteObject on PREFIX/*, and s3:ListBucket on the bucket.
type API interface {
	// GetObject is the method of the S3 client, like the others.
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	// PutObject is called with If-Match or If-None-Match.
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	// DeleteObject is called without a condition.
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
	// ListObjectsV2 is called page by page.
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Coordinator keeps the records of one fleet. It is safe for concurrent use.
type Coordinator struct {
	api            API
	bucket, prefix string
}

var _ fleet.Registry = (*Coordinator)(nil)

// New returns a coordinator for the fleet whose objects are bucket/prefix/*.json. Whether they can be written is found
// out when a governor joins. It returns an error if the bucket has no name.
func New(api API, bucket, prefix string) (*Coordinator, error) {
	if bucket == "" {
		return nil, errors.New("s3 coordinator: the bucket has no name")
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &Coordinator{api, bucket, prefix}, nil
}

const suffix = ".json"

func (c *Coordinator) key(name string) *string { return aws.String(c.prefix + name + suffix) }

func (c *Coordinator) wrap(op, name string, err error) error {
	return fmt.Errorf("%s s3://%s/%s: %w", op, c.bucket, c.prefix+name, err)
}

// maxObject bounds how much is read of an object, which may contain anything.
const maxObject = 64 << 20

// Get implements fleet.Registry.
func (c *Coordinator) Get(ctx context.Context, name string) (fleet.Record, error) {
	out, err := c.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &c.bucket, Key: c.key(name)})
	if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
		return fleet.Record{Name: name}, nil
	}
	if err != nil {
		return fleet.Record{}, c.wrap("get", name+suffix, err)
	}
	defer out.Body.Close()
	value, err := io.ReadAll(io.LimitReader(out.Body, maxObject))
	if err != nil {
		return fleet.Record{}, c.wrap("get", name+suffix, err)
	}
	return fleet.Record{Name: name, Version: aws.ToString(out.ETag), Value: value}, nil
}

// Put implements fleet.Registry.
func (c *Coordinator) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	in := &s3.PutObjectInput{
		Bucket: &c.bucket, Key: c.key(name), Body: bytes.NewReader(value), ContentType: aws.String("application/json"),
	}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	out, err := c.api.PutObject(ctx, in)
	if err != nil {
		if refused(err, version) {
			err = fleet.ErrConflict
		}
		return "", c.wrap("put", name+suffix, err)
	}
	return aws.ToString(out.ETag), nil
}

// refused reports whether a write failed because of its condition: the object has changed, is being written, or is
// gone.
func refused(err error, version string) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "PreconditionFailed", "ConditionalRequestConflict":
		return true
	case "NoSuchKey":
		return version != ""
	}
	return false
}

// Delete implements fleet.Registry.
func (c *Coordinator) Delete(ctx context.Context, name string) error {
	if _, err := c.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &c.bucket, Key: c.key(name)}); err != nil {
		return c.wrap("delete", name+suffix, err)
	}
	return nil
}

// readers is how many objects are read concurrently.
const readers = 16

// List implements fleet.Registry.
func (c *Coordinator) List(ctx context.Context, prefix string) ([]fleet.Record, error) {
	pages := s3.NewListObjectsV2Paginator(c.api, &s3.ListObjectsV2Input{
		Bucket: &c.bucket, Prefix: aws.String(c.prefix + prefix),
	})
	var names []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, c.wrap("list", prefix, err)
		}
		for _, o := range page.Contents {
			if name, ok := strings.CutSuffix(strings.TrimPrefix(aws.ToString(o.Key), c.prefix), suffix); ok {
				names = append(names, name)
			}
		}
	}
	records := make([]fleet.Record, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, name := range names {
		group.Go(func() (err error) {
			records[i], err = c.Get(ctx, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	found := records[:0]
	for _, r := range records {
		if r.Version != "" { // otherwise it was removed meanwhile
			found = append(found, r)
		}
	}
	return found, nil
}
