package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// The same on an engine's table. The scripts are in their own directory, because there may be no engine.
func TestDynamoDB(t *testing.T) {
	t.Parallel()
	engine := dynamotest.Engine(t)
	scripts, err := filepath.Glob("testdata/dynamodb/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	testscript.Run(t, testscript.Params{
		Files:               append(scripts, "testdata/script/manifest.txtar", "testdata/script/rollout.txtar"),
		RequireExplicitExec: true,
		Condition:           on("dynamodb"),
		Setup: func(env *testscript.Env) error {
			table := dynamotest.Table(t)
			env.Setenv("WEIR_STORE", "dynamodb://"+table+"?endpoint="+engine)
			env.Setenv("AWAY", "dynamodb://"+table+"?endpoint=http://127.0.0.1:1") // no server listens there
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
