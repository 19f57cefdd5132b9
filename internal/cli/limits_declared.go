package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
)

func (a *app) limitsCmd() *cobra.Command {
	return group(&cobra.Command{
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
	}, a.limitsValidateCmd(), a.limitsPlanCmd(), a.limitsApplyCmd(), a.limitsDiffCmd(), a.limitsExportCmd(),
		a.limitsSchemaCmd(), a.limitsTemplateCmd(), a.limitsHistoryCmd(), a.limitsRollbackCmd())
}

// sourceFlags select the manifests that a command works on.
type sourceFlags struct {
	files []string
	set   []string
}

func (f *sourceFlags) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "manifest `FILE`, folder with manifests, or - for standard input; repeatable")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set a variable that a manifest declares, as `NAME=VALUE`; repeatable")
	return cmd
}

// mistakes are the errors in manifests, as printed.
type mistakes struct {
	Valid  bool                   `json:"valid"`
	Errors []*manifest.Diagnostic `json:"errors"`
}

// read decodes the manifests. Errors in them are printed as the result.
func (f *sourceFlags) read(a *app) ([]*manifest.Manifest, error) {
	if len(f.files) == 0 {
		return nil, usageError{errors.New("no manifest is given: add -f FILE")}
	}
	opts := manifest.Options{Set: make(map[string]string), Env: a.lookupEnv}
	for _, text := range f.set {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--set %q is not NAME=VALUE", text)}
		}
		opts.Set[name] = value
	}
	sources, err := manifest.Open(f.files, a.in)
	if err != nil {
		return nil, err
	}
	ms, err := manifest.Decode(sources, opts)
	return ms, a.explain(err)
}

// explain prints the errors in manifests with their positions, and returns an error with their count.
func (a *app) explain(err error) error {
	var all manifest.Errors
	if !errors.As(err, &all) {
		return err
	}
	printed := a.print(mistakes{false, all}, func() {
		for _, d := range all {
			for i, line := range strings.Split(d.String(), "\n") {
				if i == 0 {
					line = a.out.Bold(line)
				}
				a.out.Println(line)
			}
		}
	})
	files := make(map[string]bool)
	for _, d := range all {
		files[d.File] = true
	}
	where := all[0].File
	if len(files) > 1 {
		where = fmt.Sprintf("%d files", len(files))
	}
	return errors.Join(fmt.Errorf("%s in %s: nothing was read or written", plural(len(all), "error"), where), printed)
}

// plural formats a count: 1 error, 2 errors.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if base, ok := strings.CutSuffix(what, "y"); ok && !strings.HasSuffix(base, "a") { // a day
		return fmt.Sprintf("%d %sies", n, base)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (a *app) limitsValidateCmd() *cobra.Command {
	var from sourceFlags
	return from.add(&cobra.Command{
		Use:     "validate",
		Short:   "Check manifests, without a store",
		Example: "  weir limits validate -f tenant-alpha.limits.yaml",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			ms, err := from.read(a)
			if err != nil {
				return err
			}
			return a.print(mistakes{true, []*manifest.Diagnostic{}}, func() {
				for _, m := range ms {
					a.out.Println(fmt.Sprintf("valid: namespace %s, manifest %s: %s", m.Namespace, m.Name, plural(len(m.Records), "record")))
				}
			})
		},
	})
}

func (a *app) limitsSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of manifests, for editors",
		Example: "  weir limits schema",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.W.Write(manifest.Schema)
			return err
		},
	}
}

func (a *app) limitsTemplateCmd() *cobra.Command {
	var from sourceFlags
	return from.add(&cobra.Command{
		Use:   "cfn-template",
		Short: "Print a CloudFormation template that declares the same limits",
		Long: `Prints a CloudFormation template in which each manifest is a resource of type
Custom::WeirLimits. The function that applies the manifests is exported by weir's stack,
which the parameter WeirStack names.`,
		Args: args(),
		RunE: func(*cobra.Command, []string) error {
			ms, err := from.read(a)
			if err != nil {
				return err
			}
			_, err = a.out.W.Write(manifest.Template(ms))
			return err
		},
	})
}

func manifestFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "manifest", manifest.DefaultName, "`NAME` of the manifest")
}

func (a *app) limitsExportCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the live limits and entities as a manifest",
		Long: `Prints the live limits and entities of the namespace as a manifest: those that the manifest
manages and those that no manifest manages. Applying the result changes none of them.`,
		Example: "  weir limits export",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(existing, func(lim *weir.Limiter) error {
				m, elsewhere, err := manifest.Export(cmd.Context(), lim, name)
				if err != nil {
					return err
				}
				if elsewhere > 0 {
					a.err.Println("left out:", plural(elsewhere, "record"), "of other manifests")
				}
				return a.printText(m.Text())
			})
		},
	}
	manifestFlag(cmd, &name)
	return cmd
}

// printText prints a manifest as it is, or as a JSON string.
func (a *app) printText(text []byte) error {
	if a.output != "json" {
		_, err := a.out.W.Write(text)
		return err
	}
	return a.print(map[string]string{"text": string(text)}, nil)
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
		return codeError{err, failed}
	case changed:
		return quietError{codeError{errors.New("there are changes"), wrongUsage}}
	}
	return nil
}

// plans makes the plans of manifests.
func (a *app) plans(ctx context.Context, lim *weir.Limiter, ms []*manifest.Manifest, exact bool) ([]*manifest.Plan, error) {
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
