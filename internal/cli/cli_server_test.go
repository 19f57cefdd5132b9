package cli_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store/disk"
)

// Commands print the same and exit with the same codes through a server as on a store.
func TestScriptsOnServer(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	var files []string
	for _, name := range []string{
		"acquire", "audit", "available", "balance", "bucket", "enforce", "entity", "explain", "group", "known", "limits",
		"manifest", "mistakes", "namespace", "plan", "quota", "slots", "spent", "wait",
	} {
		files = append(files, filepath.Join("testdata", "script", name+".txtar"))
	}
	p := params()
	p.Dir, p.Files, p.Condition = "", files, on("server")
	p.Setup = func(env *testscript.Env) error {
		st, err := disk.Open(filepath.Join(env.WorkDir, "weir-data"), nil)
		if err != nil {
			return err
		}
		lim, err := weir.New(weir.Config{Store: st})
		if err != nil {
			return err
		}
		s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
		if err != nil {
			return err
		}
		hs := httptest.NewServer(s.Handler())
		env.Defer(func() {
			hs.Close()
			_ = lim.Close()
		})
		env.Setenv("WEIR_SERVER", hs.URL)
		env.Setenv("GORACE", "atexit_sleep_ms=0")
		return nil
	}
	testscript.Run(t, p)
}
