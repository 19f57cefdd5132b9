// Package limits has the commands for limits as code: manifests, their plans, rollouts and history.
package limits

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("limits", fields)

// LimitsCmd returns the command weir limits.
func LimitsCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "limits",
		Short: "Manage limits as code: plan, apply and compare manifests",
		Long: `A manifest is a YAML file that declares a namespace's limits and entities:

  namespace: tenant-alpha
  resources:
    gpt-4:
      limits:
        rpm: {capacity: 1000}
        tpm: {capacity: 50K, burst: 75K}

A manifest manages what it declares: if you remove a record from it, the next apply deletes
the record. Records that were never in the manifest are left alone. The manifest names its
namespace.`,
	}, validate(a), plan(a), apply(a), diff(a), export(a), schema(a), cfnTemplate(a), list(a), history(a), rollback(a))
}

// SourceFlags select the manifests that a command works on.
type SourceFlags struct {
	Files []string          `json:"file" flag:"file,f"`
	Set   map[string]string `json:"set"`
}

// Read decodes the manifests. Errors in them are printed as the result.
func (f *SourceFlags) Read(a *kit.Run) ([]*manifest.Manifest, error) {
	if len(f.Files) == 0 {
		return nil, kit.Usage(errors.New("no manifest is given: add -f FILE"))
	}
	sources, err := strictyaml.Open(f.Files, a.In)
	if err != nil {
		return nil, err
	}
	ms, err := manifest.Decode(sources, strictyaml.Options{Set: f.Set, Env: variables(a)})
	if err != nil {
		return nil, kit.Mistakes(a, err)
	}
	for _, m := range ms {
		if err := a.InNamespace(m.Namespace); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

// variables returns how a manifest's variables are looked up: with a prefix, because whoever writes a manifest must not
// read the rest of the environment.
func variables(a *kit.Run) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := a.LookupEnv(strictyaml.EnvPrefix + name)
		if _, bare := a.LookupEnv(name); bare && !ok {
			a.Err.Println(fmt.Sprintf("weir: %[1]s of the environment is not used for ${%[1]s}: set %[2]s%[1]s", name,
				strictyaml.EnvPrefix))
		}
		return v, ok
	}
}

func validate(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "validate", Short: "Check manifests, without a store",
		Example: "  weir limits validate -f tenant-alpha.limits.yaml",
	}, func(_ context.Context, q *SourceFlags) error {
		ms, err := q.Read(r)
		if err != nil {
			return err
		}
		return r.Print(kit.Checked{Valid: true, Errors: []*strictyaml.Diagnostic{}}, func() {
			for _, m := range ms {
				r.Out.Printf(
					"valid: namespace %s, manifest %s: %s\n", m.Namespace, m.Name, kit.Plural(len(m.Records), "record"),
				)
			}
		})
	})
}

func schema(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors", Example: "  weir limits schema",
	}, func(context.Context, *struct{}) error {
		_, err := r.Out.W.Write(manifest.Schema)
		return err
	})
}

func cfnTemplate(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "cfn-template", Short: "Print a CloudFormation template that declares the same limits",
		Long: `Prints a CloudFormation template in which each manifest is a resource of type
Custom::WeirLimits. The function that applies the manifests is exported by weir's stack,
which the parameter WeirStack names.`,
	}, func(_ context.Context, q *SourceFlags) error {
		ms, err := q.Read(r)
		if err != nil {
			return err
		}
		text := function.Template(ms)
		switch {
		case len(text) > function.MaxTemplate || len(ms) > function.MaxResources:
			r.Err.Printf("CloudFormation refuses this template of %d bytes and %s: it takes at most %d bytes and %d "+
				"resources; make a template for some of the manifests, or apply them without CloudFormation\n",
				len(text), kit.Plural(len(ms), "resource"), function.MaxTemplate, function.MaxResources)
		case len(text) > function.MaxDirect:
			r.Err.Printf("CloudFormation takes this template of %d bytes only from S3: at most %d bytes without\n",
				len(text), function.MaxDirect)
		}
		if r.Output != "json" {
			_, err = r.Out.W.Write(text)
			return err
		}
		var doc map[string]any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return err
		}
		return r.Print(doc, nil)
	})
}

// named is a flag with the name of a manifest.
type named struct {
	Manifest string `json:"manifest" default:"default"`
}

// exportRequest names what to export.
type exportRequest struct {
	named
	lambdaFlags
}

func export(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "export", Short: "Print the live limits and entities as a manifest",
		Long: `Prints the live limits and entities of the namespace as a manifest: those that the manifest
manages and those that no manifest manages. Applying the result changes none of them.`,
		Example: "  weir limits export",
	}, func(ctx context.Context, q *exportRequest) error {
		return q.call(ctx, r, api.ExportManifest.Op, func(c api.Caller) error {
			m, _, err := api.ExportManifest.Call(ctx, c, &api.ExportQuery{Manifest: q.Manifest})
			if err != nil {
				return err
			}
			if m.LeftOut > 0 {
				r.Err.Println("left out:", kit.Plural(m.LeftOut, "record"), "of other manifests")
			}
			return printText(r, []byte(m.Text))
		})
	})
}

// printText prints a manifest as it is, or as a JSON string.
func printText(a *kit.Run, text []byte) error {
	if a.Output != "json" {
		_, err := a.Out.W.Write(text)
		return err
	}
	return a.Print(map[string]string{"text": string(text)}, nil)
}

// planFlags are the flags of commands that plan.
type planFlags struct {
	SourceFlags
	lambdaFlags
	exactFlag
	Detailed bool `json:"detailed_exitcode"`
}

type exactFlag struct {
	Exact bool `json:"exact"`
}

// exit returns the error for the exit code, as --detailed-exitcode defines it.
func (f *planFlags) exit(changed bool, err error) error {
	switch {
	case !f.Detailed:
		return err
	case err != nil:
		return kit.WithCode(err, kit.Failed)
	case changed:
		return kit.Quiet(kit.WithCode(errors.New("there are changes"), kit.WrongUsage))
	}
	return nil
}
