package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// Packages are named by their hash: equal content is the same object, and deployed code is never overwritten.
const (
	codePrefix   = "weir-lambda/"
	bucketPrefix = "weir-code-" // of the bucket that weir creates; account and region follow
)

// place is where code is uploaded.
type place struct {
	objects Objects
	region  string
	bucket  string
	account string
	made    bool // by weir, which therefore maintains it
}

// placeOf returns where to upload to; bucket "": to the bucket that weir creates. It creates nothing.
func placeOf(ctx context.Context, c *Clients, bucket string) (place, error) {
	who, err := c.Identity.GetCallerIdentity(ctx, new(sts.GetCallerIdentityInput))
	if err != nil {
		return place{}, err
	}
	pl := place{objects: c.Objects, region: c.Region, bucket: bucket, account: aws.ToString(who.Account)}
	if bucket == "" {
		pl.bucket, pl.made = bucketPrefix+pl.account+"-"+c.Region, true
	}
	return pl, nil
}

// ensure creates the bucket unless it exists. If another account owns the name, nothing is uploaded there.
func (pl *place) ensure(ctx context.Context) error {
	_, err := pl.objects.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &pl.bucket, ExpectedBucketOwner: &pl.account})
	switch {
	case err == nil && !pl.made:
		return nil
	case code(err) == "NotFound" && pl.made:
		if err := pl.makeBucket(ctx); err != nil {
			return err
		}
	case code(err) == "NotFound":
		return fmt.Errorf("bucket %s does not exist: create it, or omit --code-bucket", pl.bucket)
	case code(err) == "Forbidden":
		return fmt.Errorf(
			"bucket %s belongs to another account, or access is denied: name another with --code-bucket", pl.bucket,
		)
	case err != nil:
		return err
	}
	return pl.secure(ctx)
}

func (pl *place) makeBucket(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &pl.bucket}
	if pl.region != "us-east-1" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(pl.region),
		}
	}
	_, err := pl.objects.CreateBucket(ctx, in)
	if _, ok := errors.AsType[*types.BucketAlreadyOwnedByYou](err); ok { // a concurrent deployment created it
		return nil
	}
	return err
}

// secure makes the bucket keep old versions, stay private, and refuse unencrypted connections. It runs every time, so
// that a bucket left half configured is completed.
func (pl *place) secure(ctx context.Context) error {
	yes := aws.Bool(true)
	_, err := pl.objects.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: &pl.bucket, ExpectedBucketOwner: &pl.account,
		PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{
			BlockPublicAcls: yes, BlockPublicPolicy: yes, IgnorePublicAcls: yes, RestrictPublicBuckets: yes,
		},
	})
	if err != nil {
		return err
	}
	_, err = pl.objects.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &pl.bucket, ExpectedBucketOwner: &pl.account,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		return err
	}
	arn := "arn:" + partition(pl.region) + ":s3:::" + pl.bucket
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Sid": "TLSOnly", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": []string{arn, arn + "/*"},
		"Condition": map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}},
	}}})
	if err != nil {
		return err
	}
	_, err = pl.objects.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{
		Bucket: &pl.bucket, ExpectedBucketOwner: &pl.account, Policy: aws.String(string(policy)),
	})
	return err
}

func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// upload puts an object unless it exists.
func (pl *place) upload(ctx context.Context, key string, body []byte) error {
	_, err := pl.objects.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &pl.bucket, Key: &key, ExpectedBucketOwner: &pl.account,
	})
	// Forbidden: missing, without permission to list
	if c := code(err); err == nil || c != "NotFound" && c != "Forbidden" {
		return err
	}
	_, err = pl.objects.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &pl.bucket, Key: &key, Body: bytes.NewReader(body), ExpectedBucketOwner: &pl.account,
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	return err
}

func deleteObjects(ctx context.Context, from Objects, bucket string, objects []types.ObjectIdentifier) error {
	out, err := from.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)},
	})
	if err == nil && len(out.Errors) > 0 {
		e := out.Errors[0]
		err = fmt.Errorf("delete %s from bucket %s: %s: %s",
			aws.ToString(e.Key), bucket, aws.ToString(e.Code), aws.ToString(e.Message))
	}
	return err
}

func code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	switch api.ErrorCode() {
	case "NoSuchBucket", "NoSuchKey":
		return "NotFound"
	case "AccessDenied":
		return "Forbidden"
	}
	return api.ErrorCode()
}
