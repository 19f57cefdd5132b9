package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Scratch returns the name of a new, unused namespace.
func Scratch(scenario string) string {
	return "load-" + scenario + "-" + strings.ToLower(rand.Text()[:6])
}

// SetUp applies the manifest of a plan to a namespace through a limiter. Live records that it does not manage are an
// error.
func SetUp(ctx context.Context, p *traffic.Plan, lim *weir.Limiter, namespace string) error {
	text, err := p.Manifest(namespace)
	if err != nil {
		return err
	}
	src := strictyaml.Source{Name: "scenario " + p.Scenario.Name, Text: text}
	ms, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{})
	if err != nil {
		return err
	}
	for _, m := range ms {
		plan, err := manifest.Make(ctx, lim, m, manifest.PlanOptions{})
		if err == nil {
			_, err = manifest.Apply(ctx, lim, plan, manifest.ApplyOptions{})
		}
		if err != nil {
			return fmt.Errorf("set up namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// TearDown removes a scratch namespace with everything in it.
func TearDown(ctx context.Context, lim *weir.Limiter, namespace string) error {
	err := admin.New(lim).Namespaces.Delete(ctx, namespace)
	if err == nil {
		err = admin.New(lim).Namespaces.Purge(ctx, namespace)
	}
	if err != nil && !errors.Is(err, weir.ErrNotFound) {
		return fmt.Errorf(
			"remove namespace %s: %w: finish with weir namespace delete and weir namespace purge", namespace, err,
		)
	}
	return nil
}

// SetUp applies a plan's manifest to a namespace through the server.
func (t *HTTP) SetUp(ctx context.Context, p *traffic.Plan, namespace string) error {
	text, err := p.Manifest(namespace)
	if err == nil {
		err = t.want(ctx, http.MethodPost, "/v1/manifests/apply", "application/yaml", text)
	}
	if err != nil {
		return fmt.Errorf("set up namespace %s: %w", namespace, err)
	}
	return nil
}

// TearDown removes a scratch namespace through the server.
func (t *HTTP) TearDown(ctx context.Context, namespace string) error {
	path := "/v1/namespaces/" + url.PathEscape(namespace)
	err := t.want(ctx, http.MethodDelete, path, "", nil)
	if err == nil {
		err = t.want(ctx, http.MethodPost, path+"/purge", "application/json", nil)
	}
	if err != nil {
		return fmt.Errorf(
			"remove namespace %s: %w: finish with weir namespace delete and weir namespace purge", namespace, err,
		)
	}
	return nil
}
