package cli_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

// Stacks, on a stand-in for AWS. Scripts share it, so each has its own stack.
func TestStacks(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	cfg := mototest.Config(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/deploy", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("AWS_ENDPOINT_URL", *cfg.BaseEndpoint)
			env.Setenv("AWS_REGION", cfg.Region)
			env.Setenv("AWS_ACCESS_KEY_ID", "test")
			env.Setenv("AWS_SECRET_ACCESS_KEY", "test")
			env.Setenv("STACK", "s"+strings.ToLower(rand.Text()[:12]))
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
	})
}
