package kit

import (
	"runtime"
	"runtime/debug"
)

// BuildView describes the build.
type BuildView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Build returns what is known of the build.
func Build() BuildView {
	info, _ := debug.ReadBuildInfo()
	return buildOf(info)
}

// buildOf returns what a program's information about its build contains. Nil stands for none.
func buildOf(info *debug.BuildInfo) BuildView {
	v := BuildView{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

// String returns the version, the commit if it is known, Go's version and the platform.
func (v BuildView) String() string {
	text := "weir " + v.Version
	if v.Revision != "" {
		text += " (commit " + v.Revision + ")"
	}
	return text + " " + v.Go + " " + v.Platform
}
