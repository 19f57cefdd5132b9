package kit

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// titleOf is the annotation of a flag with the title that help shows it under.
const titleOf = "title"

// title puts flags, and those that name the files of their secrets, under a title.
func title(cmd *cobra.Command, flags []*value, text string) {
	for _, v := range flags {
		for _, name := range []string{v.flag.Name, v.flag.Name + fileSuffix} {
			if f := cmd.Flags().Lookup(name); f != nil {
				_ = cmd.Flags().SetAnnotation(name, titleOf, []string{text})
			}
		}
	}
}

// titled prints the usage of a command whose flags have titles, in the order of the flags.
func titled(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	var titles []string
	sets := make(map[string]*pflag.FlagSet)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		text := "Other flags"
		if under := f.Annotations[titleOf]; len(under) > 0 {
			text = under[0]
		}
		if sets[text] == nil {
			sets[text] = pflag.NewFlagSet("", pflag.ContinueOnError)
			sets[text].SortFlags = false
			titles = append(titles, text)
		}
		sets[text].AddFlag(f)
	})
	titles, sets["Global Flags"] = append(titles, "Global Flags"), cmd.InheritedFlags()
	for _, text := range slices.DeleteFunc(titles, func(text string) bool { return !sets[text].HasAvailableFlags() }) {
		fmt.Fprintf(out, "\n%s:\n%s", text, sets[text].FlagUsages())
	}
	return nil
}
