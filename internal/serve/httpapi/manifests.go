package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// Bounds on the manifests of a request: bytes, and pieces as counted by [strictyaml.Pieces]. Decoding takes up to a
// kilobyte for each piece, and a piece can be as short as a byte.
const (
	maxManifest = 4 << 20
	maxPieces   = 500_000
	fewPieces   = 20_000 // decoded in a few milliseconds
)

// maxManifests bounds the concurrent requests with manifests: each can keep a processor busy for seconds.
const maxManifests = 4

// maxDecoding is how long a manifest waits for others to be decoded. A tenant's next one is decoded after those of
// tenants that wait.
const maxDecoding = 15 * time.Second

// decoders decode one manifest at a time, since that can take a hundred times its size, but those with few pieces
// beside those with many.
type decoders struct{ few, many *admission.Slots }

func newDecoders() decoders {
	one := func() *admission.Slots { return admission.Varying(func(bool) int { return 1 }, maxManifests) }
	return decoders{one(), one()}
}

func (d *decoders) of(text []byte) *admission.Slots {
	if strictyaml.Pieces(text) > fewPieces {
		return d.many
	}
	return d.few
}

// manifests are the routes on which manifests are checked, compared and applied.
type manifests struct{ *Server }

// read reads the body of a request: manifests in YAML or JSON. Variables get only the values that the manifests
// declare, because the server's environment must not be visible to clients.
func (s *manifests) read(r *http.Request) ([]*manifest.Manifest, error) {
	switch base, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err == nil && (base == "application/json" || base == "application/yaml" || base == "application/x-yaml" ||
		base == "text/yaml"):
	default:
		return nil, &httpError{kind: kindMedia, detail: "the body must be application/yaml or application/json"}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, cutOff(err)
	case len(text) > maxManifest:
		return nil, &httpError{kind: kindTooLarge, detail: "at most 4 MiB of manifests are read: apply one " +
			"namespace, or manifest, at a time"}
	case strictyaml.Pieces(text) > maxPieces:
		return nil, &httpError{kind: kindTooLarge, detail: "at most 500,000 keys, values, words of comments, " +
			"commas, colons and brackets of manifests are read: apply one namespace, or manifest, at a time"}
	}
	return s.decodeManifests(r, strictyaml.Source{Name: "body", Text: text})
}

// decodeManifests decodes manifests and checks that the client may use their namespaces. From then on, the request
// counts as one that works on manifests.
func (s *manifests) decodeManifests(r *http.Request, src strictyaml.Source) ([]*manifest.Manifest, error) {
	if err := callerOf(r).Join(r.Context(), s.declaring); err != nil {
		return nil, err
	}
	turn, who := s.decoding.of(src.Text), callerOf(r).Name
	if turn.Take(r.Context(), who, 1, maxDecoding) == 0 {
		return nil, decide.ErrOverloaded
	}
	defer turn.Free(who)
	ms, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{})
	if err != nil {
		return nil, manifestError(err)
	}
	return ms, s.mayAll(r, ms)
}

// manifestError converts an error in a manifest, or a conflict with the live records, for the client.
func manifestError(err error) error {
	var bad strictyaml.Errors
	var problems manifest.ProblemsError
	var claimed *manifest.ClaimedError
	var failed *manifest.FailedError
	switch {
	case errors.As(err, &bad):
		more := map[string]strictyaml.Errors{"errors": bad}
		return &httpError{kind: kindInvalid, detail: bad.Error(), field: "body", more: more}
	case errors.As(err, &claimed):
		return &httpError{kind: kindConflict, detail: err.Error(), more: claimed.Sent()}
	case errors.As(err, &problems), errors.As(err, &failed) && errors.Is(err, weir.ErrConflict):
		return &httpError{kind: kindConflict, detail: err.Error()}
	}
	return err
}

func (s *manifests) validate(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.operand(r, nil, nil, true); err != nil {
		return err
	}
	ms, err := s.read(r)
	if err != nil {
		return err
	}
	type valid struct {
		Namespace string `json:"namespace"`
		Manifest  string `json:"manifest"`
		Hash      string `json:"hash"`
		Records   int    `json:"records"`
	}
	all := make([]valid, len(ms))
	for i, m := range ms {
		all[i] = valid{m.Namespace, m.Name, m.Hash(), len(m.Records)}
	}
	return s.reply(w, r, http.StatusOK, map[string]any{"manifests": all})
}

// plans returns the plans for the manifests of a request, compared with the live records.
func (s *manifests) plans(r *http.Request, whole bool) ([]*manifest.Plan, error) {
	var q api.PlanQuery
	if _, err := s.operand(r, &q, api.PlanManifests.Fields(), true); err != nil {
		return nil, err
	}
	ms, err := s.read(r)
	if err != nil {
		return nil, err
	}
	return s.planOf(r.Context(), ms, manifest.PlanOptions{Exact: q.Exact, Whole: whole})
}

func (s *manifests) planOf(
	ctx context.Context, ms []*manifest.Manifest, opts manifest.PlanOptions,
) ([]*manifest.Plan, error) {
	plans := make([]*manifest.Plan, len(ms))
	for i, m := range ms {
		var err error
		if plans[i], err = manifest.Make(ctx, s.cfg.Limiter, m, opts); err != nil {
			return nil, manifestError(err)
		}
	}
	return plans, nil
}

func (s *manifests) plan(w http.ResponseWriter, r *http.Request) error {
	plans, err := s.plans(r, false)
	if err != nil {
		return err
	}
	return s.reply(w, r, http.StatusOK, api.Plans{Plans: plans})
}

// diff lists the live records that differ from the manifests, and why.
func (s *manifests) diff(w http.ResponseWriter, r *http.Request) error {
	plans, err := s.plans(r, true)
	if err != nil {
		return err
	}
	reports, err := drift.Reports(r.Context(), s.cfg.Limiter, plans)
	if err != nil {
		return err
	}
	return s.reply(w, r, http.StatusOK, api.Drifts{Manifests: reports})
}

func (s *manifests) apply(w http.ResponseWriter, r *http.Request) error {
	var q api.ManifestChange
	if _, err := s.operand(r, &q, api.ApplyManifests.Fields(), true); err != nil {
		return err
	}
	ms, err := s.read(r)
	if err != nil {
		return err
	}
	return s.applyAll(w, r, ms, &q.Permitted, 0)
}

// applyAll plans and applies manifests as far as the request permits. Nobody is there to confirm.
func (s *manifests) applyAll(
	w http.ResponseWriter, r *http.Request, ms []*manifest.Manifest, q *api.Permitted, rollback int,
) error {
	ctx := s.principal(r)
	plans, err := s.planOf(ctx, ms, manifest.PlanOptions{})
	if err != nil {
		return err
	}
	if q.State != "" && (len(plans) != 1 || plans[0].State != q.State) {
		return &httpError{
			kind: kindConflict, detail: "the live records have changed since the plan was made: plan again",
		}
	}
	all := api.Applied{Results: []manifest.Result{}}
	for _, p := range plans {
		res, err := manifest.Apply(ctx, s.cfg.Limiter, p, manifest.ApplyOptions{
			Adopt: q.Adopt, Keep: q.Delete != nil && !*q.Delete, Rate: api.ApplyRate, Rollback: rollback,
		})
		if err != nil {
			return manifestError(err)
		}
		all.Results = append(all.Results, res)
	}
	return s.reply(w, r, http.StatusOK, all)
}

func (s *manifests) rollback(w http.ResponseWriter, r *http.Request) error {
	var q api.Rollback
	lim, err := s.operand(r, &q, api.RollbackManifest.Fields(), false)
	switch {
	case err != nil:
		return err
	case q.Revision == 0:
		return badField("revision", "is missing")
	}
	if err := noBody(r); err != nil {
		return err
	}
	_, text, err := admin.New(lim).Manifests.Revision(r.Context(), q.Name, q.Revision)
	if err != nil {
		return err
	}
	ms, err := s.decodeManifests(r, strictyaml.Source{Name: "revision", Text: text})
	if err != nil {
		return err
	}
	return s.applyAll(w, r, ms, &q.Permitted, q.Revision)
}

func (s *manifests) schema(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.operand(r, nil, nil, true); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/schema+json"}
	write(w, http.StatusOK, manifest.Schema)
	return nil
}
