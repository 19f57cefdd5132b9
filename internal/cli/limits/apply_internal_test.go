package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
)

// A partial apply fails, whatever was wrong with the rest, but the store that does not answer has its own exit code.
func TestPartly(t *testing.T) {
	t.Parallel()
	bad := &weir.ConfigError{Field: "limits", Reason: "is bad"}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{bad, kit.WrongUsage},
		{errors.Join(&manifest.FailedError{}, bad), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrNotFound), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrUnavailable), kit.Unavailable},
	} {
		if got := kit.CodeOf(partly(fmt.Errorf("apply: %w", tt.err))); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.err, got, tt.want)
		}
	}
}

// overtaken is a planner whose applies are overtaken by others.
type overtaken struct{ planner }

func (overtaken) apply(_ context.Context, p *manifest.Plan, _ manifest.ApplyOptions) (manifest.Result, error) {
	return manifest.Result{Namespace: p.Namespace}, fmt.Errorf("overtaken; %w", manifest.ErrNotBegun)
}

// TestOvertaken checks that an apply that changed nothing prints no result.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	run := &kit.Run{In: strings.NewReader(""), Out: term.New(&out, nil), Err: term.New(&errs, nil), Output: "json"}
	plans := []*manifest.Plan{{Namespace: "a", Manifest: "default"}}
	err := applyPlans(t.Context(), run, overtaken{}, plans, &applyFlags{}, &stageFlags{}, 0)
	if !errors.Is(err, manifest.ErrNotBegun) || !strings.HasSuffix(err.Error(), "; nothing was changed") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(out.String(), "revision") || strings.Contains(out.String(), "created") {
		t.Errorf("printed %s", out.String())
	}
}
