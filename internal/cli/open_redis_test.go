package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir/internal/testkit/porttest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
)

// The same on a Redis server.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	scripts, err := filepath.Glob("testdata/redis/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	testscript.Run(t, testscript.Params{
		Files:               append(scripts, "testdata/script/manifest.txtar"),
		RequireExplicitExec: true,
		Condition:           on("redis"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("WEIR_STORE", "redis://"+server.Addr+"?prefix="+filepath.Base(env.WorkDir))
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			port, err := porttest.Reserve()
			env.Setenv("ADDRESS", "127.0.0.1:"+port)
			env.Setenv("WEIR_SERVE_GRPC", "off")
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "request": request, "eventually": eventually, "cmp-times": cmpTimes, "cmp-history": cmpHistory,
		},
	})
}
