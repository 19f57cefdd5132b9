package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
)

// about is what a reader must know about a run to repeat it.
type about struct {
	when     time.Time
	took     time.Duration
	rounds   int
	length   time.Duration
	note     string
	load     string // load of the machine, at the end
	cores    int
	versions []string
}

// linked are the packages whose versions the page shows.
var linked = []string{
	"github.com/aws/aws-sdk-go-v2/service/dynamodb", "github.com/go-redis/redis_rate/v10",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"go.uber.org/ratelimit",
	"golang.org/x/time", "google.golang.org/grpc",
}

// zaeVersions prints the versions of zae-limiter and of what it is built on.
const zaeVersions = `import importlib.metadata as m, platform
print("Python", platform.python_version(), ` +
	`*("· %s %s" % (n, m.version(n)) for n in ("zae-limiter", "boto3", "aiobotocore")))`

func aboutRun(ctx context.Context, o harness.Options, began time.Time, note string) about {
	a := about{
		when: began, took: time.Since(began), rounds: o.Rounds, length: o.Length, note: note,
		cores: runtime.NumCPU(), versions: []string{runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		a.load = strings.Join(strings.Fields(string(text))[:3], ", ")
	}
	add := func(text string) {
		if text != "" {
			a.versions = append(a.versions, text)
		}
	}
	add(said(ctx, "weir ", "git", "describe", "--always", "--dirty", "--tags"))
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if slices.Contains(linked, m.Path) {
				add(m.Path + " " + m.Version)
			}
		}
	}
	if info, err := buildinfo.ReadFile(o.Peers.Envoy); err == nil {
		add(info.Main.Path + " " + info.Main.Version)
	}
	if o.Peers.Python != "" {
		add(said(ctx, "", o.Peers.Python, "-c", zaeVersions))
	}
	if text := said(ctx, "", "redis-server", "--version"); text != "" {
		words := strings.Fields(text)
		add("Redis " + strings.TrimPrefix(words[min(2, len(words)-1)], "v="))
	}
	add(engineVersion())
	return a
}

// said returns the output of a command, prefixed with before, or "" if it fails.
func said(ctx context.Context, before, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return before + strings.TrimSpace(string(out))
}

// engineVersion returns the version of the DynamoDB engine that npm installs.
func engineVersion() string {
	text, err := os.ReadFile(filepath.Join("..", "e2e", "package-lock.json"))
	var lock struct {
		Packages map[string]struct{ Version string }
	}
	if err != nil || json.Unmarshal(text, &lock) != nil {
		return ""
	}
	for path, p := range lock.Packages {
		if _, name, ok := strings.Cut(path, "node_modules/@dynoxide/"); ok {
			return "@dynoxide/" + name + " " + p.Version
		}
	}
	return ""
}
