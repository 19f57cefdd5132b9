// Package limits has the commands for limits as code: manifests, their plans, rollouts and history.
package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/manifest"
)

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
	}, limitsValidateCmd(a), limitsPlanCmd(a), limitsApplyCmd(a), limitsDiffCmd(a), limitsExportCmd(a),
		limitsSchemaCmd(a), limitsTemplateCmd(a), limitsHistoryCmd(a), limitsRollbackCmd(a))
}

// SourceFlags select the manifests that a command works on.
type SourceFlags struct {
	Files []string
	Set   []string
}

func (f *SourceFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVarP(&f.Files, "file", "f", nil, "manifest `FILE`, folder with manifests, or - for standard input; repeatable")
	cmd.Flags().StringArrayVar(&f.Set, "set", nil, "set a variable that a manifest declares, as `NAME=VALUE`; repeatable")
	return cmd
}

// Read decodes the manifests. Errors in them are printed as the result.
func (f *SourceFlags) Read(a *kit.Run) ([]*manifest.Manifest, error) {
	if len(f.Files) == 0 {
		return nil, kit.Usage(errors.New("no manifest is given: add -f FILE"))
	}
	opts := manifest.Options{Set: make(map[string]string), Env: a.LookupEnv}
	for _, text := range f.Set {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, kit.Usagef("--set %q is not NAME=VALUE", text)
		}
		opts.Set[name] = value
	}
	sources, err := manifest.Open(f.Files, a.In)
	if err != nil {
		return nil, err
	}
	ms, err := manifest.Decode(sources, opts)
	return ms, a.Mistakes(err)
}

func limitsValidateCmd(a *kit.Run) *cobra.Command {
	var from SourceFlags
	return from.add(&cobra.Command{
		Use:     "validate",
		Short:   "Check manifests, without a store",
		Example: "  weir limits validate -f tenant-alpha.limits.yaml",
		Args:    kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			ms, err := from.Read(a)
			if err != nil {
				return err
			}
			return a.Print(kit.Checked{Valid: true, Errors: []*manifest.Diagnostic{}}, func() {
				for _, m := range ms {
					a.Out.Println(fmt.Sprintf("valid: namespace %s, manifest %s: %s", m.Namespace, m.Name, kit.Plural(len(m.Records), "record")))
				}
			})
		},
	})
}

func limitsSchemaCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of manifests, for editors",
		Example: "  weir limits schema",
		Args:    kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.Out.W.Write(manifest.Schema)
			return err
		},
	}
}

func limitsTemplateCmd(a *kit.Run) *cobra.Command {
	var from SourceFlags
	return from.add(&cobra.Command{
		Use:   "cfn-template",
		Short: "Print a CloudFormation template that declares the same limits",
		Long: `Prints a CloudFormation template in which each manifest is a resource of type
Custom::WeirLimits. The function that applies the manifests is exported by weir's stack,
which the parameter WeirStack names.`,
		Args: kit.Args(),
		RunE: func(*cobra.Command, []string) error {
			ms, err := from.Read(a)
			if err != nil {
				return err
			}
			_, err = a.Out.W.Write(manifest.Template(ms))
			return err
		},
	})
}

func manifestFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "manifest", manifest.DefaultName, "`NAME` of the manifest")
}

func limitsExportCmd(a *kit.Run) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the live limits and entities as a manifest",
		Long: `Prints the live limits and entities of the namespace as a manifest: those that the manifest
manages and those that no manifest manages. Applying the result changes none of them.`,
		Example: "  weir limits export",
		Args:    kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				m, elsewhere, err := manifest.Export(cmd.Context(), lim, name)
				if err != nil {
					return err
				}
				if elsewhere > 0 {
					a.Err.Println("left out:", kit.Plural(elsewhere, "record"), "of other manifests")
				}
				return printText(a, m.Text())
			})
		},
	}
	manifestFlag(cmd, &name)
	return cmd
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
	exact    bool
	detailed bool
}

func (f *planFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.exact, "exact", false, "count all live buckets that a change touches, not only the first 1,000")
	cmd.Flags().BoolVar(&f.detailed, "detailed-exitcode", false, "exit with 0 if there are no changes, 1 on an error, 2 if there are changes")
}

// exit returns the error for the exit code, as --detailed-exitcode says.
func (f *planFlags) exit(changed bool, err error) error {
	switch {
	case !f.detailed:
		return err
	case err != nil:
		return kit.WithCode(err, kit.Failed)
	case changed:
		return kit.Quiet(kit.WithCode(errors.New("there are changes"), kit.WrongUsage))
	}
	return nil
}

// plans makes the plans of manifests.
func plans(ctx context.Context, a *kit.Run, lim *weir.Limiter, ms []*manifest.Manifest, exact bool) ([]*manifest.Plan, error) {
	var plans []*manifest.Plan
	for _, m := range ms {
		p, err := manifest.Make(ctx, lim, m, manifest.PlanOptions{Exact: exact})
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}
