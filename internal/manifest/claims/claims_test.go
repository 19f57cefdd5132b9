package claims_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest/claims"
)

// However many records others manage, the message is short, and an answer has the first 500 of them.
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 300, 500, 501, 100_000} {
		e := &claims.Error{Manifest: "m"}
		for i := range n {
			e.Claims = append(e.Claims, claims.Claim{Target: fmt.Sprint("resource r", i), Declared: fmt.Sprint("f:", i), By: "other"})
		}
		sent := e.Sent()
		if len(sent.Conflicts) != min(n, 500) || sent.LeftOut != n-len(sent.Conflicts) {
			t.Errorf("%d: %d sent, %d left out", n, len(sent.Conflicts), sent.LeftOut)
		}
		if len(e.Error()) > 300 || !strings.Contains(e.Error(), "resource r0 (f:0)") {
			t.Error(e)
		}
		var got *claims.Error
		err := sent.Received(e.Error())
		if !errors.As(err, &got) || got.Error() != e.Error() || len(got.Claims) != len(sent.Conflicts) || got.LeftOut != sent.LeftOut ||
			!errors.Is(err, weir.ErrConflict) {
			t.Errorf("received: %+v", got)
		}
	}
	if err := (claims.Sent{}).Received("text"); err != nil {
		t.Errorf("without claims: %v", err)
	}
}
