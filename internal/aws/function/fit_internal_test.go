package function

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/manifest"
)

// An answer too large for Lambda is cut and marked so. The full plan is the first part to go.
func TestFit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 200) // six bytes each
	whole := Answer{Status: Failed, ManifestHash: "sha256:", Saved: json.RawMessage(`"` + strings.Repeat("x", maxAnswer) + `"`), Result: &manifest.Result{}}
	whole.Changes = []Change{{Target: "a"}}
	if a := whole.fit(); a.Saved != nil || len(a.Changes) != 1 || a.ChangesLeftOut != 0 {
		t.Errorf("%d changes, %d left out", len(a.Changes), a.ChangesLeftOut)
	}
	for range 6000 {
		whole.Changes = append(whole.Changes, Change{Target: long})
		whole.Errors = append(whole.Errors, Problem{Message: long})
		whole.Result.Failed = append(whole.Result.Failed, manifest.Failure{Error: long})
	}
	a := whole.fit()
	text, err := json.Marshal(a)
	if err != nil || len(text) > maxAnswer || len(text) < maxAnswer/4 {
		t.Errorf("%d bytes, error %v", len(text), err)
	}
	if a.Status != Failed || a.ManifestHash == "" || len(a.Changes)+a.ChangesLeftOut != 6001 || len(a.Errors) == 0 || len(whole.Result.Failed) != 6000 {
		t.Errorf("%d changes, %d left out, %d errors", len(a.Changes), a.ChangesLeftOut, len(a.Errors))
	}
}
