package cli

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
)

func TestUntilReady(t *testing.T) {
	t.Parallel()
	refused := kit.WithCode(errors.New("refused"), kit.Unavailable)
	for _, tt := range []struct {
		name     string
		wait     time.Duration
		after    int // attempts that fail
		fails    error
		want     error
		attempts int
		took     time.Duration
	}{
		{"at once", 0, 0, refused, nil, 1, 0},
		{"only one attempt", 0, 1, refused, refused, 1, 0},
		{"after a while", time.Second, 3, refused, nil, 4, 300 * time.Millisecond},
		{"never", 250 * time.Millisecond, 9, refused, refused, 3, 250 * time.Millisecond},
		{"wrong usage", time.Second, 9, kit.Usagef("no URL"), kit.Usagef("no URL"), 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin, attempts := time.Now(), 0
				err := untilReady(t.Context(), tt.wait, func() error {
					if attempts++; attempts > tt.after {
						return nil
					}
					return tt.fails
				})
				if (err == nil) != (tt.want == nil) || err != nil && err.Error() != tt.want.Error() {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				if took := time.Since(begin); attempts != tt.attempts || took != tt.took {
					t.Errorf("%d attempts in %v, want %d in %v", attempts, took, tt.attempts, tt.took)
				}
			})
		})
	}
}
