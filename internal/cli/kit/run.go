// Package kit holds what the commands of weir share: a run with its streams, flags and store, configuration, output,
// and exit codes.
package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/store"
)

// Run is one run of the command: its streams, and the flags that all commands have.
type Run struct {
	In       io.Reader
	Out, Err *term.Screen
	env      []string

	given

	Store, Server     secret.Address
	Namespace, Output string

	sharing

	Config weir.Config // for Open, which sets the store and the namespace
	// LastGood returns what is known of records that cannot be read. Nil for nothing.
	LastGood func([]store.Key) (store.Got, bool)
	Late     func(why error) store.Store // returns a stand-in for a store that does not answer; nil for none
	Opened   store.Store                 // the limiter's store, set by Open

	// command is the path of the command, set once arguments, flags and configuration are valid. Any error before that
	// is wrong usage.
	command string
}

// Patience is how long an interactive command waits for the store.
const Patience = 10 * time.Second

// New returns a run of the command in the given environment.
func New(in io.Reader, out, errs io.Writer, env []string) *Run {
	return &Run{
		In: in, Out: term.New(out, env), Err: term.New(errs, env), env: env,
		Config: weir.Config{StoreTimeout: Patience},
	}
}

// kinds describe the values of flags, by pflag's name of their type.
var kinds = map[string]string{
	"int": "a whole number", "duration": "a duration such as 30s or 72h", "bool": "true or false",
}

// badValue returns what is wrong with a flag's value, without pflag's text and without names of Go; any other error as
// it is.
func badValue(err error) error {
	if usage, ok := errors.AsType[UsageError](err); ok {
		return usage
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	kind, ok := kinds[bad.GetFlag().Value.Type()]
	switch {
	case !ok:
		return err
	case errors.Is(err, strconv.ErrRange):
		return Usagef("--%s is too large or too small: %q", bad.GetFlag().Name, bad.GetValue())
	}
	return Usagef("--%s must be %s: %q", bad.GetFlag().Name, kind, bad.GetValue())
}

// Prepare adds the flags that all commands have, and makes the command read the environment and the configuration file.
func (a *Run) Prepare(root *cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Name() == cobra.ShellCompRequestCmd { // it configures the command that it completes
			a.command = cmd.CommandPath()
			return nil
		}
		if err := configure(a, cmd); err != nil {
			return err
		}
		if err := a.checkOutput(); err != nil {
			return err
		}
		if err := checkRequired(cmd); err != nil {
			return err
		}
		a.command = cmd.CommandPath()
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 { // the flag may be another command's
			return cmd.Args(cmd, words)
		}
		err = badValue(err)
		if near := likeFlag(cmd, err); near != "" {
			return fmt.Errorf("%w: did you mean %s?", err, near)
		}
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && unicode.IsDigit(rune(unknown.GetSpecifiedName()[0])) {
			err = fmt.Errorf("-%s reads as flags: put -- before it", unknown.GetSpecifiedShortnames())
		}
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "read flags from `FILE` instead of weir.yaml")
	a.Store = "disk:./weir-data"
	flags.Var(&address{&a.Store}, "store", "`URL` of the store")
	flags.Var(&address{&a.Server}, "server", "`URL` of a server to work through instead of a store")
	a.tls.register(flags)
	flags.StringVar(&a.Namespace, "namespace", weir.DefaultNamespace, "`NAME` of the namespace to work in")
	flags.StringVarP(&a.Output, "output", "o", "table", "output `FORMAT`: table, json or yaml")
	flags.Var(&kept{&a.Config.AuditRetention}, "keep-audit",
		"how long to keep the audit events of changes on a store: a `DURATION` or forever, the same in all processes "+
			"(default 8760h)")
	completeGlobal(a, root)
	return root
}

// kept is how long something is kept, as a flag. The zero value is the default.
type kept struct{ to *time.Duration }

// Set implements pflag.Value.
func (k *kept) Set(text string) error {
	d, err := Kept("keep-audit", text)
	if d < 0 {
		d = 100 * 365 * 24 * time.Hour
	}
	*k.to = d
	return err
}

// String implements pflag.Value.
func (k *kept) String() string {
	if k.to == nil || *k.to == 0 {
		return ""
	}
	return k.to.String()
}

// Type implements pflag.Value.
func (k *kept) Type() string { return "duration" }

// Kept parses how long a flag keeps something: at least an hour, or -1 for forever.
func Kept(flag, text string) (time.Duration, error) {
	if text == "forever" {
		return -1, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Hour {
		return 0, Usagef("--%s %q must be a duration of at least an hour, such as 2160h, or forever", flag, text)
	}
	return d, nil
}

// checkRequired names the flags that a command needs and that are set nowhere.
func checkRequired(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is missing: see %s --help", missing[0], cmd.CommandPath())
	}
	return fmt.Errorf("%s are missing: see %s --help", strings.Join(missing, " and "), cmd.CommandPath())
}

// address is an address as a flag.
type address struct{ to *secret.Address }

// Set implements pflag.Value.
func (a *address) Set(text string) error { return a.to.UnmarshalText([]byte(text)) }

// String implements pflag.Value.
func (a *address) String() string {
	if a.to == nil {
		return ""
	}
	return a.to.String()
}

// Type implements pflag.Value.
func (a *address) Type() string { return "string" }

// LookupEnv returns a variable of the environment. An empty one counts as missing.
func (a *Run) LookupEnv(name string) (string, bool) {
	for _, e := range slices.Backward(a.env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok && v != "" {
			return v, true
		}
	}
	return "", false
}

// Execute runs the command and returns its exit code.
func (a *Run) Execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return Done
	}
	if a.command == "" {
		err = UsageError{err}
	}
	return report(ctx, a, err)
}

// Group makes a command that only holds subcommands. On its own it prints its help; an unknown subcommand is wrong
// usage.
func Group(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(sub...)
	for _, c := range cmd.Commands() {
		switch c.Name() {
		case "show": // otherwise set is nearest to get
			c.SuggestFor = []string{"get"}
		case "get":
			c.SuggestFor = []string{"show"}
		}
		if one, ok := strings.CutSuffix(c.Name(), "y"); ok {
			c.SuggestFor = append(c.SuggestFor, one+"ies")
		}
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		elsewhere := strings.Join(below(cmd.Root(), args[0]), " or ")
		if elsewhere != "" && (!cmd.HasParent() || args[0] == "set") { // such as weir limits set
			return fmt.Errorf("%w: did you mean %s?", err, elsewhere)
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
		}
		return fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

// likeFlag returns the flag that is meant by an unknown one that is longer or shorter, or that names a format.
func likeFlag(cmd *cobra.Command, err error) (near string) {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	name := unknown.GetSpecifiedName()
	if name == "json" || name == "yaml" {
		return "-o " + name
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && (strings.HasPrefix(f.Name, name) || strings.HasPrefix(name, f.Name)) && near == "" {
			near = "--" + f.Name
		}
	})
	return near
}

// below returns the subcommands of a name in the groups of a command, each with its group.
func below(cmd *cobra.Command, name string) (found []string) {
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.Name() == name {
				found = append(found, c.CommandPath())
			}
		}
	}
	return found
}

// As returns ctx with the user's name as the principal, under which changes are audited.
func As(ctx context.Context) context.Context {
	name := "uid " + strconv.Itoa(os.Getuid()) // a container may have no name for it
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return admin.WithPrincipal(ctx, name)
}
