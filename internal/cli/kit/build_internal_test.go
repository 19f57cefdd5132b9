package kit

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
	t.Parallel()
	platform := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"of a program without modules", nil, "weir (devel)"},
		{"of a working tree without a version", &debug.BuildInfo{}, "weir (devel)"},
		{"by go install", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "weir v1.2.3"},
		{"by make dist", &debug.BuildInfo{
			Main:     debug.Module{Version: "v1.2.3+dirty"},
			Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}},
		}, "weir v1.2.3+dirty (commit 0123abc)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := buildOf(tt.info).String(); got != tt.want+platform {
				t.Errorf("got %q, want %q", got, tt.want+platform)
			}
		})
	}
}
