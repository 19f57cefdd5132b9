package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// contrib returns a file below contrib.
func contrib(t *testing.T, name ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "contrib"}, name...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// takes reports what weir does not take: a command line, without the program, and variables with their values.
func takes(args []string, env map[string]string) (found []string) {
	top := root(kit.New(nil, io.Discard, io.Discard, nil))
	cmd, rest, err := top.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		found = append(found, err.Error())
	}
	flags := make(map[string]*pflag.Flag)
	walk(top, func(cmd *cobra.Command) {
		set := cmd.LocalNonPersistentFlags()
		if !cmd.HasParent() {
			set = cmd.PersistentFlags()
		}
		set.VisitAll(func(f *pflag.Flag) { flags[kit.Variable(kit.CommandPath(cmd), f.Name)] = f })
	})
	for _, name := range slices.Sorted(maps.Keys(env)) {
		f := flags[name]
		if f == nil {
			found = append(found, name+" is the variable of no flag")
		} else if err := f.Value.Set(env[name]); err != nil {
			found = append(found, fmt.Sprintf("%s=%s: %v", name, env[name], err))
		}
	}
	return found
}

func TestTakesCaught(t *testing.T) {
	t.Parallel()
	if found := takes([]string{"serve", "--http", ":8080"}, map[string]string{"WEIR_SERVE_LOG_FORMAT": "json"}); len(found) > 0 {
		t.Error(found)
	}
	for _, args := range [][]string{{"serv"}, {"serve", "--htp", ":8080"}} {
		if len(takes(args, nil)) != 1 {
			t.Errorf("%q is taken", args)
		}
	}
	for name, value := range map[string]string{"WEIR_SERVE_HTP": ":8080", "WEIR_SERVE_INSECURE": "perhaps"} {
		if len(takes(nil, map[string]string{name: value})) != 1 {
			t.Errorf("%s=%s is taken", name, value)
		}
	}
}

// service is a service of a compose file.
type service struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	Hostname    string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
}

func decode(t *testing.T, v any, name ...string) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(contrib(t, name...)), v); err != nil {
		t.Fatalf("%s: %v", filepath.Join(name...), err)
	}
}

// TestCompose checks that what contrib/compose names exists: flags and variables of weir, files, addresses and folders.
// Which metrics the dashboard and the alerts query is tested beside them.
func TestCompose(t *testing.T) {
	t.Parallel()
	var f struct {
		Services map[string]service
		Volumes  map[string]any
	}
	decode(t, &f, "compose", "compose.yaml")
	weir := f.Services["weir"]
	for _, found := range takes(weir.Command, weir.Environment) {
		t.Error("weir:", found)
	}
	if !weir.ReadOnly || !slices.Equal(weir.CapDrop, []string{"ALL"}) || len(weir.SecurityOpt) != 1 {
		t.Errorf("weir is less confined than it could be: %+v", weir)
	}
	dir := filepath.Join("..", "..", "contrib", "compose")
	file := filepath.Join(dir, weir.Build.Context, weir.Build.Dockerfile)
	if _, err := os.Stat(filepath.Clean(file)); err != nil {
		t.Error(err)
	}
	if host, _, _ := strings.Cut(strings.TrimPrefix(weir.Environment["WEIR_STORE"], "redis://"), ":"); f.Services[host].Image == "" {
		t.Errorf("the store is on %q, which is no service", host)
	}
	mounted := make(map[string]string) // by path in a container
	for name, s := range f.Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: other machines reach port %s", name, port)
			}
		}
		for _, volume := range s.Volumes {
			from, to, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(from, ".") {
				if _, ok := f.Volumes[from]; !ok {
					t.Errorf("%s: no volume %s", name, from)
				}
				continue
			}
			mounted[strings.TrimSuffix(to, ":ro")] = filepath.Join(dir, from)
			if _, err := os.Stat(filepath.Join(dir, from)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	var p struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, &p, "compose", "prometheus.yaml")
	if got, want := p.ScrapeConfigs[0].StaticConfigs[0].Targets[0], weir.Hostname+weir.Environment["WEIR_SERVE_METRICS"]; got != want {
		t.Errorf("Prometheus scrapes %q, and the metrics are at %q", got, want)
	}
	var g struct {
		Datasources []struct{ Type, URL string }
	}
	decode(t, &g, "compose", "grafana", "datasource.yaml")
	var d struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, &d, "compose", "grafana", "dashboards.yaml")
	if source := g.Datasources[0]; source.Type != "prometheus" || source.URL != "http://prometheus:9090" {
		t.Errorf("Grafana reads %+v", source)
	}
	home := f.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	for _, path := range []string{p.RuleFiles[0], home, d.Providers[0].Options.Path + "/weir.json"} {
		if !strings.Contains(mounted[path], filepath.Join("docs", "observability")) {
			t.Errorf("%s is %q, no file of docs/observability", path, mounted[path])
		}
	}
}

// TestHelm checks that weir takes the arguments and variables of the chart. e2e/helm renders it, and holds the golden files.
func TestHelm(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../e2e/helm/testdata/*.golden.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			t.Fatal(err)
		}
		deployments := 0
		for doc := range strings.SplitSeq(string(text), "---\n") {
			var d struct {
				Kind string
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct {
								Args []string
								Env  []struct{ Name, Value string }
							}
						}
					}
				}
			}
			if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
				t.Fatal(err)
			}
			if d.Kind != "Deployment" {
				continue
			}
			deployments++
			weir := d.Spec.Template.Spec.Containers[0]
			env := make(map[string]string)
			for _, e := range weir.Env {
				if env[e.Name] = e.Value; e.Name == storeurl.RedisPassword { // of no flag
					delete(env, e.Name)
				}
			}
			for _, found := range takes(weir.Args, env) {
				t.Errorf("%s: %s", file, found)
			}
		}
		if deployments != 1 {
			t.Errorf("%s: %d deployments", file, deployments)
		}
	}
}

// TestUnit checks the unit of systemd: its command and settings, and where systemd is installed, that it accepts the unit
// and rates its exposure at 1.5 of 10 or less.
func TestUnit(t *testing.T) {
	t.Parallel()
	text := contrib(t, "systemd", "weir.service")
	env := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(text, -1) {
		env[m[1]] = m[2]
	}
	start := strings.Fields(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)[1])
	for _, found := range takes(start[1:], env) {
		t.Error(found)
	}
	if len(env) == 0 || env["WEIR_STORE"] != "disk:/var/lib/"+regexp.MustCompile(`(?m)^StateDirectory=(.*)$`).FindStringSubmatch(text)[1] {
		t.Errorf("the store is %q, not in the state directory", env["WEIR_STORE"])
	}

	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is missing: systemd has not verified the unit")
		return
	}
	program, err := os.Executable() // systemd checks that the program exists
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weir.service")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, start[0], program)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", path).Output()
	exposure := regexp.MustCompile(`exposure level for .*: ([\d.]+)`).FindSubmatch(out)
	if err != nil || exposure == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	if level, err := strconv.ParseFloat(string(exposure[1]), 64); err != nil || level > 1.5 {
		t.Errorf("exposure %s, error %v, want at most 1.5", exposure[1], err)
	}
}
