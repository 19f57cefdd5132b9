package grpcapi

import (
	"testing"

	"google.golang.org/grpc/codes"
)

func TestFailureOfEveryCode(t *testing.T) {
	t.Parallel()
	for code := range failuresOf {
		if failuresOf[code].code == codes.OK {
			t.Errorf("code %d has no failure", code)
		}
	}
}
