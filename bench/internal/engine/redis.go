package engine

import (
	"os"
	"os/exec"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/testkit/redistest"
)

// Redis starts a server that ends with the row, and returns its address.
func Redis(e *harness.Env) (string, error) {
	for _, name := range []string{os.Getenv("WEIR_TEST_REDIS_SERVER"), "redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if name == "" || err != nil {
			continue
		}
		s, err := redistest.Launch(path)
		if err != nil {
			return "", err
		}
		e.Defer(func() error { s.Stop(); return nil })
		return s.Addr, nil
	}
	return "", harness.ErrNoRedis
}
