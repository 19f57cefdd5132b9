package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/grpclimit"
	"github.com/weirlimits/weir/weirtest"
)

// TestSlots checks that a call holds its slot until the handler has returned.
func TestSlots(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 100_000), weir.Limit{Name: "parallel", Slots: 1})
	calls := 0
	e := &echo{say: func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		calls++
		_, err := l.Acquire(ctx, weir.Request{Entity: grpclimit.KeyID("alice"), Resource: sayMethod})
		if weir.CodeOf(err) != weir.CodeExceeded || grpclimit.Lease(ctx).Slots()["parallel"] != 1 {
			t.Errorf("the call holds no slot: %v", err)
		}
		if calls%2 == 0 {
			panic("no")
		}
		return in, nil
	}}
	conn, _ := setup(t, l, e, func(c *grpclimit.Config) { c.Tokens = estimate })
	for i := range 5 {
		want := codes.OK
		if i%2 == 1 {
			want = codes.DataLoss
		}
		wantCode(t, say(as(t, "alice"), conn), want)
	}
}
