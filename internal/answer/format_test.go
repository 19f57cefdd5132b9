package answer_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// TestOpenAI compares answers in the format of OpenAI's API with what that sends.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	of := func(limit string, available, burst int64, full, retry time.Duration) weir.LimitStatus {
		return weir.LimitStatus{
			Entity: "a", Limit: limit, Amount: burst, Burst: burst, Period: time.Minute, Available: available, Full: full,
			Refused: retry > 0, RetryAfter: retry,
		}
	}
	shadow := of("tpm", 0, 7, time.Hour, time.Hour)
	shadow.Shadow, shadow.Refused = true, false
	for _, tt := range []struct {
		name     string
		problem  answer.Problem
		statuses []weir.LimitStatus
		fields   string
		body     string
	}{
		{
			"tokens",
			answer.Problem{Kind: answer.Exceeded, Detail: `too "much"`, RetryAfter: 6310 * time.Millisecond},
			[]weir.LimitStatus{of("rpm", 59, 60, time.Second, 0), of("tpm", 300, 50_000, 6*time.Minute, 6*time.Second), of("usd", 1, 1, 0, 0)},
			"limit-requests=60 remaining-requests=59 reset-requests=1s limit-tokens=50000 remaining-tokens=300 reset-tokens=6m0s retry-after-ms=6310",
			`{"error":{"message":"too \"much\"","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
		},
		{
			"requests",
			answer.Problem{Kind: answer.Exceeded, Detail: "x", RetryAfter: 19*time.Millisecond + 1},
			[]weir.LimitStatus{of("rpd", -3, 60, 20*time.Millisecond, 19*time.Millisecond+1), of("rpm", 1, 60, time.Minute, 0), shadow},
			"limit-requests=60 remaining-requests=0 reset-requests=20ms retry-after-ms=20",
			`{"error":{"message":"x","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
		},
		{
			"another unit",
			answer.Problem{Kind: answer.Exceeded, Detail: "x"},
			[]weir.LimitStatus{of("rpm", 1, 60, 0, 0), of("usd", 0, 5, time.Hour, time.Hour)},
			"limit-requests=60 remaining-requests=1 reset-requests=0s",
			`{"error":{"message":"x","type":"rate_limit_exceeded","param":null,"code":"rate_limit_exceeded"}}`,
		},
		{
			"a balance", // that a rate refuses, too, is no reason to retry
			answer.Problem{Kind: answer.Exceeded, Detail: "x"},
			[]weir.LimitStatus{of("rpm", 0, 60, time.Second, time.Second), {Entity: "a", Limit: "credits", Refused: true, RetryAfter: math.MaxInt64}},
			"limit-requests=60 remaining-requests=0 reset-requests=1s x-should-retry=false",
			`{"error":{"message":"x","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
		},
		{
			"never",
			answer.Problem{Kind: answer.ExceedsBurst, Detail: "x", Field: "tokens.tpm"},
			nil, "",
			`{"error":{"message":"x","type":"invalid_request_error","param":"tokens.tpm","code":"exceeds_burst"}}`,
		},
		{
			"no store",
			answer.Problem{Kind: answer.Unavailable, Detail: "x", RetryAfter: time.Second},
			nil, "retry-after-ms=1000",
			`{"error":{"message":"x","type":"server_error","param":null,"code":"temporary_reduced_capacity"}}`,
		},
		{
			"chosen",
			answer.Problem{Kind: &answer.Kind{Status: 401, URI: "about:blank"}, Detail: "x"},
			nil, "",
			`{"error":{"message":"x","type":"invalid_request_error","param":null,"code":null}}`,
		},
	} {
		p := tt.problem
		p.Statuses = tt.statuses
		if got := strings.TrimSpace(string(answer.OpenAI.Append(nil, &p))); got != tt.body {
			t.Errorf("%s: got  %s\nwant %s", tt.name, got, tt.body)
		}
		var fields []string
		set := func(name, value string) {
			fields = append(fields, fmt.Sprintf("%s=%s", strings.TrimPrefix(name, "x-ratelimit-"), value))
		}
		answer.OpenAI.Fields(p.Statuses, p.RetryAfter, set)
		if got := strings.Join(fields, " "); got != tt.fields {
			t.Errorf("%s: got  %s\nwant %s", tt.name, got, tt.fields)
		}
		answer.ProblemJSON.Fields(p.Statuses, p.RetryAfter, func(name, _ string) { t.Errorf("%s: has %s", tt.name, name) })
	}
}
