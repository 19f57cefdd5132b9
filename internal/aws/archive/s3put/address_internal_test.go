package s3put

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ region, bucket, want string }{
		{"eu-central-1", "weir", "https://weir.s3.eu-central-1.amazonaws.com/a/dt%3D1"},
		{"cn-north-1", "weir", "https://weir.s3.cn-north-1.amazonaws.com.cn/a/dt%3D1"},
		{"us-gov-west-1", "a.b", "https://s3.us-gov-west-1.amazonaws.com/a.b/a/dt%3D1"},
	} {
		u, err := New(aws.Config{Region: c.region}, c.bucket).address("a/dt=1")
		if err != nil || u.String() != c.want {
			t.Errorf("address %s, error %v, want %s", u, err, c.want)
		}
	}
}
