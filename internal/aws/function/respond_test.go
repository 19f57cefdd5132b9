package function_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
)

// network answers requests in place of the real network.
type network struct {
	asked     []string // hosts
	redirects []string // where the first requests are redirected to
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, r.URL.Host)
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}, Request: r}
	if len(n.redirects) > 0 {
		resp.StatusCode = http.StatusTemporaryRedirect
		resp.Header.Set("Location", n.redirects[0])
		n.redirects = n.redirects[1:]
	}
	return resp, nil
}

// answerTo creates a resource in a region, whose response goes to the given address. done reports whether the function did any work.
func answerTo(t *testing.T, region, address string, n *network) (done bool, err error) {
	t.Helper()
	b := setup(t)
	b.Provisioner.Anywhere, b.Provisioner.Region, b.Provisioner.Client = false, region, &http.Client{Transport: n}
	open := b.Provisioner.Open
	b.Provisioner.Open = func(ctx context.Context) (*weir.Limiter, error) {
		done = true
		return open(ctx)
	}
	ev := b.event("Create", "1", properties(t, second))
	ev.ResponseURL = address
	_, err = b.Handle(t.Context(), ev.encode(t))
	return done, err
}

const bucket = "cloudformation-custom-resource-response-"

// Responses go to CloudFormation's bucket of the function's region, in any partition, over https.
func TestAnswersToCloudFormation(t *testing.T) {
	t.Parallel()
	for host, region := range map[string]string{
		bucket + "useast1.s3.amazonaws.com":                     "us-east-1",
		bucket + "useast1.s3.us-east-1.amazonaws.com":           "us-east-1",
		bucket + "euwest1.s3-eu-west-1.amazonaws.com":           "eu-west-1",
		bucket + "eucentral1.s3.eu-central-1.amazonaws.com:443": "eu-central-1",
		bucket + "usgovwest1.s3.us-gov-west-1.AmazonAWS.com":    "us-gov-west-1",
		bucket + "cnnorth1.s3.cn-north-1.amazonaws.com.cn":      "cn-north-1",
		bucket + "euscdeeast1.s3.eusc-de-east-1.amazonaws.eu":   "eusc-de-east-1",
		bucket + "apsoutheast2.s3.ap-southeast-2.amazonaws.com": "ap-southeast-2",
		bucket + "apnortheast1.s3-ap-northeast-1.amazonaws.com": "ap-northeast-1",
		bucket + "uswest2.s3.us-west-2.amazonaws.com":           "us-west-2",
	} {
		n := &network{}
		if done, err := answerTo(t, region, "https://"+host+"/a?secret", n); err != nil || !done || !slices.Equal(n.asked, []string{host}) {
			t.Errorf("%s: done %t, asked %q, %v", host, done, n.asked, err)
		}
	}
}

// Anyone who may invoke the function can name any address. Nothing is sent to another address, not even of AWS, no work is
// done, and the error does not reveal the address.
func TestAnswersToNobodyElse(t *testing.T) {
	t.Parallel()
	const right = bucket + "uswest2.s3.us-west-2.amazonaws.com"
	for _, address := range []string{
		"", "secret", "https://", "://secret", "https://" + right + "/%zz?secret", "file:///etc/secret",
		"http://" + right + "/secret", "https://169.254.169.254/secret", "https://[fd00:ec2::254]/secret", "https://localhost/secret",
		"https://evil.example/secret", "https://" + right + ".evil.example/secret", "https://evilamazonaws.com/secret",
		"https://evil.example/" + right + "?secret", "https://amazonaws.com/secret", "https://" + right + ":8443/secret",
		"https://" + right + "@evil.example/secret", "https://secret@" + right + "/", "https://evil.example#." + right + "/secret",
		// somebody's own bucket, gateway or function, and what only the network of the function reaches
		"https://mine.s3.us-west-2.amazonaws.com/secret", "https://id.execute-api.us-west-2.amazonaws.com/secret",
		"https://sqs.us-west-2.amazonaws.com/secret", "https://s3.us-west-2.amazonaws.com/" + bucket + "uswest2/secret",
		"https://x." + right + "/secret", "https://" + bucket + "uswest2x.s3.us-west-2.amazonaws.com/secret",
		"https://" + bucket + "uswest2.s3.eu-west-1.amazonaws.com/secret", "https://" + bucket + "uswest2.s3.us-west-2.amazonaws.com.evil.example/secret",
		"https://" + bucket + "uswest2.s3-website-us-west-2.amazonaws.com/secret",
		"https://" + bucket + "euwest1.s3.eu-west-1.amazonaws.com/secret", // of another region
		"https://" + bucket + ".s3.amazonaws.com/secret",
	} {
		for _, region := range []string{"us-west-2", ""} {
			n := &network{}
			done, err := answerTo(t, region, address, n)
			if err == nil || done || len(n.asked) > 0 || !strings.Contains(err.Error(), "responses go only to CloudFormation's bucket") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: done %t, asked %q, %v", address, done, n.asked, err)
			}
		}
	}
}

// A response that is redirected stays in CloudFormation's bucket.
func TestAnswersSentOn(t *testing.T) {
	t.Parallel()
	const region, first, next = "us-west-2", bucket + "uswest2.s3.amazonaws.com", bucket + "uswest2.s3.us-west-2.amazonaws.com"
	n := &network{redirects: []string{"https://" + next + "/a?secret"}}
	if _, err := answerTo(t, region, "https://"+first+"/a?secret", n); err != nil || !slices.Equal(n.asked, []string{first, next}) {
		t.Errorf("asked %q, %v", n.asked, err)
	}
	n = &network{redirects: []string{"https://mine.s3.us-west-2.amazonaws.com/secret"}}
	_, err := answerTo(t, region, "https://"+first+"/a?secret", n)
	if err == nil || !strings.Contains(err.Error(), `"mine.s3.us-west-2.amazonaws.com"`) || strings.Contains(err.Error(), "secret") || !slices.Equal(n.asked, []string{first}) {
		t.Errorf("asked %q, %v", n.asked, err)
	}
}
