package envoy_test

import (
	"maps"
	"slices"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fields lists every field of Envoy's messages and how it is handled. A field that a newer version adds fails the test
// until it is listed here.
var fields = map[proto.Message]map[protoreflect.Name]string{
	&rlsv3.RateLimitRequest{}: {
		"domain":      "TestGolden",
		"descriptors": "TestGolden",
		"hits_addend": "TestHits",
	},
	&ratelimitv3.RateLimitDescriptor{}: {
		"entries":          "TestMapping",
		"limit":            "TestOverride",
		"hits_addend":      "TestHits, TestPeek",
		"is_negative_hits": "TestNegativeHits",
	},
	&ratelimitv3.RateLimitDescriptor_Entry{}: {
		"key":   "TestMapping",
		"value": "TestMapping",
	},
	&ratelimitv3.RateLimitDescriptor_RateLimitOverride{}: {
		"requests_per_unit": "TestOverride",
		"unit":              "TestOverrideUnits",
		"unit_multiplier":   "TestOverrideUnits",
	},
	&rlsv3.RateLimitResponse{}: {
		"overall_code":            "TestGolden",
		"statuses":                "TestGolden",
		"response_headers_to_add": "TestGolden",
		"request_headers_to_add":  "ignored: what is behind Envoy is told in the metadata, if Envoy is told to",
		"raw_body":                "TestBody",
		"dynamic_metadata":        "TestGolden",
		"quota":                   "ignored: Envoy does not implement it",
	},
	&rlsv3.RateLimitResponse_DescriptorStatus{}: {
		"code":                 "TestGolden",
		"current_limit":        "TestGolden",
		"limit_remaining":      "TestGolden",
		"duration_until_reset": "TestGolden",
		"quota":                "ignored: Envoy does not implement it",
	},
	&rlsv3.RateLimitResponse_RateLimit{}: {
		"name":              "TestGolden",
		"requests_per_unit": "TestGolden",
		"unit":              "TestOverrideUnits",
		"unit_multiplier":   "TestOverrideUnits",
	},
}

func TestEveryField(t *testing.T) {
	t.Parallel()
	for m, known := range fields {
		d := m.ProtoReflect().Descriptor()
		var has []protoreflect.Name
		for i := range d.Fields().Len() {
			has = append(has, d.Fields().Get(i).Name())
		}
		slices.Sort(has)
		if want := slices.Sorted(maps.Keys(known)); !slices.Equal(has, want) {
			t.Errorf("%s has the fields %s, known are %s", d.FullName(), has, want)
		}
	}
}
