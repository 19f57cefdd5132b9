package grpcapi

import (
	"testing"

	"google.golang.org/grpc/codes"
)

func TestStatusOfEveryCode(t *testing.T) {
	t.Parallel()
	for code, st := range statuses {
		if st.code == codes.OK {
			t.Errorf("code %d has no status", code)
		}
	}
}
