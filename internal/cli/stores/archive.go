package stores

import (
	"context"
	"net/url"
	"strings"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/aws/archive/s3bucket"
)

// OpenArchive returns the archive at an address: s3://BUCKET/PREFIX, file:///FOLDER or a folder.
func OpenArchive(ctx context.Context, address string) (archive.Bucket, error) {
	if rest, ok := strings.CutPrefix(address, "s3://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		if name == "" {
			return nil, storeurl.Mistakef("archive %q names no bucket: write s3://BUCKET/PREFIX",
				secret.Address(address))
		}
		cfg, err := awsconfig.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		// S3 emulators have no host name per bucket.
		return s3bucket.New(s3.NewFromConfig(cfg, func(o *s3.Options) {
			o.UsePathStyle = o.BaseEndpoint != nil
		}), name, prefix), nil
	}
	if strings.HasPrefix(address, "file:") {
		u, err := url.Parse(address)
		if err != nil || u.Host != "" || u.Path == "" {
			return nil, storeurl.Mistakef("archive %q is not file:///FOLDER", secret.Address(address))
		}
		return archive.Dir(u.Path), nil
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok || address == "" {
		return nil, storeurl.Mistakef("archive %q: unknown scheme %q: use s3://BUCKET/PREFIX or a folder",
			secret.Address(address), scheme)
	}
	return archive.Dir(address), nil
}
