package kit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

const configName = "weir.yaml"

// given is where the values of flags come from.
type given struct {
	configFile string
	places     map[string]place // of the flags that are set
}

// configure sets the flags that are not on the command line from their variables, or else from the configuration file.
// Such flags count as given, so they also satisfy required flags.
func configure(a *Run, cmd *cobra.Command) error {
	if v, ok := a.LookupEnv("WEIR_CONFIG"); ok && !cmd.Flags().Changed("config") {
		a.configFile = v
	}
	conf, err := loadConfig(a.configFile, cmd.Root())
	if err != nil {
		return err
	}
	path := CommandPath(cmd)
	var bad error
	places := make(map[string]place)
	a.places = places
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			places[f.Name] = onCommandLine
		}
		if f.Changed || f.Name == "help" || f.Name == "config" || bad != nil {
			return
		}
		where := path
		if cmd.Root().PersistentFlags().Lookup(f.Name) == f {
			where = nil
		}
		name := Variable(where, f.Name)
		if v, ok := a.LookupEnv(name); ok {
			places[f.Name] = inEnvironment
			if err := setFlag(cmd, f, split(f, v)); err != nil {
				bad = fmt.Errorf("%s: %w", name, err)
			}
			return
		}
		if node := conf.find(append(slices.Clone(where), f.Name)); node != nil {
			places[f.Name] = conf.place
			if err := setFlag(cmd, f, texts(node)); err != nil {
				bad = fmt.Errorf("%s:%d: %s: %w", conf.file, node.Line, f.Name, err)
			}
		}
	})
	if bad != nil {
		return bad
	}
	return a.choose(places["store"], places["server"])
}

// place is where a flag is set. Later ones override earlier ones.
type place int

const (
	unset    place = iota
	inFolder       // in the current folder's file, which may be another's
	inFile
	inEnvironment
	onCommandLine
)

// choose leaves either the store or the server.
func (a *Run) choose(store, server place) error {
	if store == server && server != unset && a.Server != "" {
		return errors.New("--store and --server exclude each other: set only one of them")
	}
	if store > server {
		a.Server = ""
	}
	return nil
}

// MaySend returns an error if a secret would be sent to servers that weir.yaml of the current folder names: whoever
// wrote that file would receive the secret. The secret is a flag, or "" for WEIR_TOKEN; it may be sent if the same file
// holds it. The servers are flags.
func (a *Run) MaySend(secret string, servers ...string) error {
	for _, server := range servers {
		if a.places[server] == inFolder && a.places[secret] != inFolder {
			return Usagef("%[1]s is set in %[2]s of the current folder, and a token from elsewhere is not sent to a "+
				"server that such a file names: give --%[1]s or its variable, or trust the file with --config %[2]s",
				server, configName)
		}
	}
	return nil
}

// CommandPath returns the names of a command below weir.
func CommandPath(cmd *cobra.Command) []string { return strings.Fields(cmd.CommandPath())[1:] }

// Variable returns the name of a flag's environment variable, such as WEIR_STORE or WEIR_SERVE_LEASE_KEY.
func Variable(path []string, flag string) string {
	name := strings.Join(append([]string{"weir"}, append(slices.Clone(path), flag)...), "_")
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// split returns the values in a variable: several, separated by commas or spaces, if the flag is repeatable.
func split(f *pflag.Flag, text string) []string {
	if _, many := f.Value.(pflag.SliceValue); !many {
		return []string{text}
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func setFlag(cmd *cobra.Command, f *pflag.Flag, values []string) error {
	if _, many := f.Value.(pflag.SliceValue); !many && len(values) != 1 {
		return errors.New("takes exactly one value")
	}
	for _, v := range values {
		if err := cmd.Flags().Set(f.Name, v); err != nil {
			return fmt.Errorf("%q is not a valid value for the flag", v)
		}
	}
	return nil
}

// config is a configuration file. The zero value is an empty file.
type config struct {
	file  string
	place place
	root  *yaml.Node
}

// loadConfig reads the file given by --config, else ./weir.yaml, else weir.yaml in the user's configuration folder. A
// key that is not a flag is an error, reported with its line.
func loadConfig(given string, root *cobra.Command) (config, error) {
	files := []string{given}
	if given == "" {
		files = []string{configName}
		if dir, err := os.UserConfigDir(); err == nil {
			files = append(files, filepath.Join(dir, "weir", configName))
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && given == "" {
			continue
		}
		if err != nil {
			return config{}, fmt.Errorf("read configuration: %w", err)
		}
		c := config{file: file, place: inFile}
		if given == "" && file == configName {
			c.place = inFolder
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return config{}, fmt.Errorf("%s: %w", file, err)
		}
		if len(doc.Content) > 0 {
			c.root = doc.Content[0]
		}
		return c, c.check(root, c.root)
	}
	return config{}, nil
}

// check refuses keys that name neither a subcommand nor one of the command's own flags.
func (c config) check(cmd *cobra.Command, node *yaml.Node) error {
	if node == nil || node.Tag == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: must be a mapping of flags to values", c.file, node.Line)
	}
	flags := cmd.LocalNonPersistentFlags()
	if !cmd.HasParent() {
		flags = cmd.PersistentFlags()
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if seen[key.Value] {
			return fmt.Errorf("%s:%d: duplicate key %q", c.file, key.Line, key.Value)
		}
		seen[key.Value] = true
		if sub := child(cmd, key.Value); sub != nil {
			if err := c.check(sub, value); err != nil {
				return err
			}
			continue
		}
		if f := flags.Lookup(key.Value); f == nil || f.Name == "help" || f.Name == "config" {
			return fmt.Errorf(
				"%s:%d: %q is not a flag or command of %s", c.file, key.Line, key.Value, cmd.CommandPath(),
			)
		}
		for _, n := range append([]*yaml.Node{value}, value.Content...) {
			if n.Kind != yaml.ScalarNode && (n != value || n.Kind != yaml.SequenceNode) {
				return fmt.Errorf("%s:%d: %s must be a value or a list of values", c.file, n.Line, key.Value)
			}
		}
	}
	return nil
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

// find returns the value at a path of keys, or nil.
func (c config) find(path []string) *yaml.Node {
	node := c.root
	for _, name := range path {
		var next *yaml.Node
		for i := 0; node != nil && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				next = node.Content[i+1]
			}
		}
		node = next
	}
	return node
}

func texts(node *yaml.Node) []string {
	if node.Kind == yaml.ScalarNode {
		return []string{node.Value}
	}
	var all []string
	for _, n := range node.Content {
		all = append(all, n.Value)
	}
	return all
}
