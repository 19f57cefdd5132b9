package httpapi

import "testing"

func TestKindOfEveryCode(t *testing.T) {
	t.Parallel()
	for code, k := range kinds {
		if k == nil {
			t.Errorf("code %d has no kind of problem", code)
		}
	}
}
