package cursor_test

import (
	"errors"
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	mark := cursor.Mark("buckets", "n", 100)
	for _, at := range []string{"", "alice/api", "\x00\xff"} {
		if got, err := cursor.Parse(mark, cursor.Make(mark, at)); err != nil || got != at {
			t.Errorf("%q came back as %q, error %v", at, got, err)
		}
	}
	for name, bad := range map[string]string{
		"another query": cursor.Make(cursor.Mark("buckets", "m", 100), "alice"),
		"too short":     "abc",
		"no base64":     "!",
		"nothing":       "",
	} {
		if _, err := cursor.Parse(mark, bad); !errors.Is(err, store.ErrBadCursor) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
