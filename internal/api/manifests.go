package api

import (
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
)

// ApplyRate is how many records a server writes per second for one apply.
const ApplyRate = 2000

// PlanQuery is manifests to compare with the live records.
type PlanQuery struct {
	Text  string `json:"text" in:"body"`
	Exact bool   `json:"exact" in:"query"`
}

// Plans are plans, one for each manifest.
type Plans struct {
	Plans []*manifest.Plan `json:"plans"`
}

// Drifts are how live records differ from manifests, one for each manifest.
type Drifts struct {
	Manifests []drift.Report `json:"manifests"`
}

// Permitted is what an apply may do. With State, it does nothing unless the plan is the one with this state.
type Permitted struct {
	Adopt  bool   `json:"adopt" in:"query"`
	Delete *bool  `json:"delete" in:"query"` // nil means true
	State  string `json:"state" in:"query"`
}

// ManifestChange is manifests to apply.
type ManifestChange struct {
	Text string `json:"text" in:"body"`
	Permitted
}

// Rollback names a revision to apply again.
type Rollback struct {
	Name     string `json:"name" in:"path"`
	Revision int    `json:"revision" in:"query" range:"1.."`
	Permitted
}

// Applied is what was applied, for each manifest.
type Applied struct {
	Results []manifest.Result `json:"results"`
}

// The operations on manifests. They are for servers: a program with a store plans with [manifest.Make] and applies the
// plan that it has, instead of making it again. The manifests name their namespaces.
var (
	PlanManifests = declare[PlanQuery, Plans](
		Op{Name: "planManifests", Method: "POST", Path: "/v1/manifests/plan", Raw: true}, nil,
	)
	DiffManifests = declare[PlanQuery, Drifts](
		Op{Name: "diffManifests", Method: "POST", Path: "/v1/manifests/diff", Raw: true}, nil,
	)
	ApplyManifests = declare[ManifestChange, Applied](
		Op{Name: "applyManifests", Method: "POST", Path: "/v1/manifests/apply", Need: Admin, Raw: true}, nil,
	)
	RollbackManifest = declare[Rollback, Applied](
		Op{Name: "rollbackManifest", Method: "POST", Path: "/v1/manifests/{name}/rollback", Need: Admin, Raw: true},
		nil,
	)
)
