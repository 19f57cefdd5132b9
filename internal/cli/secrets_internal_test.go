package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/testkit/porttest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/internal/testkit/redistest"
)

// variables are the variables of the environment that the program names, beside those of flags, and whether each holds a
// secret. One that the sources name and that is missing here fails.
var variables = map[string]bool{
	"WEIR_TOKEN": true, "WEIR_REDIS_PASSWORD": true, "WEIR_REDIS_SENTINEL_PASSWORD": true,
	"OTEL_EXPORTER_OTLP_HEADERS": true, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": true,

	"WEIR_CONFIG": false, "WEIR_VAR_": false, "WEIR_REDIS_USERNAME": false, "WEIR_REDIS_SENTINEL_USERNAME": false,
	"OTEL_SDK_DISABLED": false, "OTEL_TRACES_EXPORTER": false, "OTEL_TRACES_SAMPLER": false,
	"OTEL_EXPORTER_OTLP_ENDPOINT": false, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": false,
	// Set for the program, not by an operator.
	"WEIR_STORE": false, "WEIR_SERVER": false,
}

// foreign are secrets that libraries take from the environment.
var foreign = []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// public are flags whose names look like secrets'.
var public = map[string]bool{"code-key": true, "kms-key": true, "token-file": true, "worker-token-file": true, "lease-key-file": true, "webhook-secret-file": true, "tls-key": true, "access-key-file": true, "client-key": true, "tokens": true}

// secretPlaces returns the variables of all flags that hold secrets, and the others of the table.
func secretPlaces(t *testing.T) []string {
	t.Helper()
	places := append([]string(nil), foreign...)
	for name, secret := range variables {
		if secret {
			places = append(places, name)
		}
	}
	suspect := regexp.MustCompile(`token|secret|password|\bkey\b|-key|credential`)
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch {
			case kit.IsSecret(f):
				places = append(places, kit.Variable(kit.CommandPath(cmd), f.Name))
				if cmd.Flags().Lookup(f.Name+"-file") == nil || !f.Hidden {
					t.Errorf("%s --%s: has no flag for a file, or is shown", cmd.CommandPath(), f.Name)
				}
			case suspect.MatchString(f.Name) && !public[f.Name]:
				t.Errorf("%s --%s: make it a secret.Text, or list it as public", cmd.CommandPath(), f.Name)
			}
		})
	})
	if len(places) < 12 {
		t.Fatalf("only %d places: %v", len(places), places)
	}
	return places
}

// TestVariables finds every variable that the program's sources name.
func TestVariables(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^"(WEIR|OTEL)_[A-Z_]+"$`)
	flags := make(map[string]bool)
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[kit.Variable(kit.CommandPath(cmd), f.Name)] = true })
	})
	seen := make(map[string]bool)
	for _, dir := range []string{".", "../serve", "../api", "../manifest", "../../store", "../../internal/lab"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "storetest") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && form.MatchString(l.Value) {
					seen[strings.Trim(l.Value, `"`)] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range seen {
		if _, known := variables[name]; !known && !flags[name] {
			t.Errorf("%s is not in the table of variables", name)
		}
	}
	for name, secret := range variables {
		if secret && !seen[name] {
			t.Errorf("%s is not in the sources: strike it from the table of variables", name)
		}
	}
}

// TestCommandLine gives every flag of every command a secret, or an address with a password: all that take texts refuse
// it, and show none.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	tried := 0
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() {
			cmd.InheritedFlags() // merges them
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "string" || f.Name == "config" {
					return
				}
				value := "redis://ann:pl4nted@127.0.0.1:1"
				if kit.IsSecret(f) {
					value = "pl4nted-and-long-enough"
				}
				tried++
				var out bytes.Buffer
				a := kit.New(strings.NewReader(""), &out, &out, nil)
				r := root(a)
				r.SetArgs(append(kit.CommandPath(cmd), "--"+f.Name+"="+value))
				r.SetOut(&out)
				r.SetErr(&out)
				code, text := a.Execute(t.Context(), r), out.String()
				named := strings.Contains(text, "can see the command line") || strings.Contains(text, " is missing: ")
				if code != kit.WrongUsage || !named || strings.Contains(text, "pl4nted") {
					t.Errorf("%s --%s: exit code %d: %s", cmd.CommandPath(), f.Name, code, text)
				}
			})
		}
	})
	if tried < 200 {
		t.Errorf("only %d flags", tried)
	}
}

// plant is a set of secrets, each in its place, and all that was printed or sent while they were there.
type plant struct {
	dir     string
	secrets map[string]string // place → secret
	env     []string

	mu   sync.Mutex
	seen map[string][]byte
}

func (p *plant) saw(where string, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[where] = append(append(p.seen[where], text...), '\n')
}

// search looks for the secrets, as they are and encoded, in all that was seen.
func (p *plant) search(t *testing.T) {
	t.Helper()
	for place, secret := range p.secrets {
		for _, form := range []string{
			secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
			base64.RawURLEncoding.EncodeToString([]byte(secret)),
		} {
			for where, text := range p.seen {
				if bytes.Contains(text, []byte(form)) {
					t.Errorf("%s is in %s: %s", place, where, text)
				}
			}
		}
	}
}

// command returns a command of this program, in the plant's folder and environment.
func (p *plant) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Args = append([]string{"weir"}, args...) // TestMain runs the command of this name
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// run runs a command to its end.
func (p *plant) run(t *testing.T, args ...string) {
	t.Helper()
	out, err := p.command(t.Context(), args...).CombinedOutput()
	if len(out) == 0 {
		t.Errorf("%v: %v, and no output", args, err)
	}
	p.saw(strings.Join(args, " "), out)
}

func (p *plant) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// server is where traces and events are sent: it keeps the bodies.
func (p *plant) server(t *testing.T, where string) string {
	t.Helper()
	hs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.saw(where, body)
	}))
	t.Cleanup(hs.Close)
	return hs.URL
}

// certificate writes a certificate and its key, which is a secret.
func (p *plant) certificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.file(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	p.file(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	p.secrets["--tls-key"] = string(private)
}

// serve runs a server, sends it requests of all kinds, and ends it.
func (p *plant) serve(t *testing.T, bearer string, args ...string) {
	t.Helper()
	port, err := porttest.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	scrapes, err := porttest.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := p.command(t.Context(), append(args, "serve", "--http", "127.0.0.1:"+port, "--grpc", "off", "--auth", "tokens.yaml",
		"--tls-cert", "cert.pem", "--tls-key", "key.pem", "--metrics", "127.0.0.1:"+scrapes, "--log-level", "debug", "--log-requests",
		"--trace-ratio", "1", "--log-near-limit", "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its certificate has no name
	ask := func(method, url, token, body string) bool {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		p.saw(method+" "+url, fmt.Appendf(text, "%d %v", resp.StatusCode, resp.Header))
		return true
	}
	base := "https://127.0.0.1:" + port
	for deadline := time.Now().Add(time.Minute); !ask("GET", base+"/healthz", "", ""); time.Sleep(20 * time.Millisecond) { // real time: a process is starting
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the server does not start: %s", out.String())
		}
	}
	wrong := bearer[:len(bearer)-4] + "pl4n"
	p.secrets["a wrong token"] = wrong
	ask("PUT", base+"/v1/limits?resource=b", bearer, `{"limits":["rpm:2/min"]}`)
	for _, token := range []string{bearer, bearer, bearer, wrong, p.secrets["WEIR_TOKEN"]} {
		ask("POST", base+"/v1/acquire", token, `{"entity":"a","resource":"b","tokens":{"rpm":1}}`)
		ask("POST", base+"/v1/leases/AAAA/rollback", token, "")
		ask("POST", base+"/v1/acquire", token, `{"entity":7`)
		for _, path := range []string{"/v1/whoami", "/v1/namespaces", "/v1/audit", "/v1/entities", "/v1/explain?entity=a&resource=b", "/v1/nothing", "/metrics", "/readyz", "/"} {
			ask("GET", base+path, token, "")
		}
	}
	ask("GET", "http://127.0.0.1:"+scrapes+"/metrics", "", "")
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); err == nil {
		p.saw("/proc/PID/cmdline", line)
	} else if runtime.GOOS == "linux" {
		t.Error(err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	p.saw("the server's output", out.Bytes())
}

// TestSecretsShown plants a secret in every place of the configuration: in the environment, in files, and in a
// configuration file. None is found in anything that the program prints, serves or sends, beside the header or
// signature that it is for.
func TestSecretsShown(t *testing.T) {
	t.Parallel()
	places := secretPlaces(t)
	for _, how := range []string{"environment", "files", "configuration"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := &plant{dir: t.TempDir(), secrets: make(map[string]string), seen: make(map[string][]byte)}
			for _, place := range places {
				p.secrets[place] = "pl4nted-" + strings.ReplaceAll(strings.ToLower(place), "_", "-") + "-" + rand.Text()
			}
			redis := redistest.Start(t, "--requirepass", p.secrets["WEIR_REDIS_PASSWORD"])
			p.plant(t, how, places)
			p.certificate(t)
			address := "redis://" + redis.Addr + "?prefix=a"
			bearer, err := p.command(t.Context(), "token", "create", "--name", "ops", "--role", "admin", "--namespace", "*", "--no-expiry", "--file", "tokens.yaml").Output()
			if err != nil {
				t.Fatal(err)
			}
			p.secrets["--auth"] = strings.TrimSpace(string(bearer))
			config := []string{"--config", "conf.yaml"}
			with := func(args ...string) []string { return append(append([]string(nil), config...), args...) }
			if how == "environment" { // the password in the address, for once
				p.env = append(p.env, "WEIR_STORE="+strings.Replace(address, "//", "//:"+p.secrets["WEIR_REDIS_PASSWORD"]+"@", 1))
			} else {
				p.env = append(p.env, "WEIR_STORE="+address)
			}
			p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+p.server(t, "traces"), "WEIR_SERVE_WEBHOOK="+p.server(t, "events")+"/T0?token="+p.secrets["WEIR_SERVE_WEBHOOK_SECRET"])
			p.serve(t, p.secrets["--auth"], config...)
			for _, output := range []string{"table", "json", "yaml"} {
				p.run(t, with("doctor", "-o", output)...)
				p.run(t, with("entity", "list", "-o", output, "--server", "http://127.0.0.1:1")...)
			}
			p.run(t, with("load", "run", "simple", "--no-setup", "--http", "http://127.0.0.1:1", "--workers", "127.0.0.1:1", "--for", "10ms", "--warm-up", "0s")...)
			p.run(t, with("load", "worker", "--listen", "127.0.0.1:x")...)
			p.run(t, with("governor", "proxy", "--budget", "10:10", "--listen", "127.0.0.1:x")...)
			p.run(t, with("watch", "--once", "--server", "http://127.0.0.1:1")...)
			p.run(t, with("serve", "--http", "127.0.0.1:0", "--auth", "none.yaml")...)
			p.run(t, with("torture", "--duration", "1ms", "--processes", "2", "--rate", "100")...)
			p.env = append(p.env, "WEIR_REDIS_PASSWORD_FILE=", "WEIR_REDIS_PASSWORD=wrong-pl4nted")
			p.secrets["a wrong password"] = "wrong-pl4nted"
			for _, store := range []string{address, "redis://:wrong-pl4nted@" + redis.Addr, "redis://:wrong-pl4nted@[", "redis://:wrong-pl4nted@h?x=1", "nosql://:wrong-pl4nted@h", ":wrong-pl4nted@h", "dynamodb://t?endpoint=http://u:wrong-pl4nted@127.0.0.1:1", "dynamodb://t?endpoint=ftp://u:wrong-pl4nted@h&max-shards=7", "redis://h?password=wrong-pl4nted"} {
				p.env = append(p.env, "WEIR_STORE="+store)
				p.run(t, with("doctor", "-o", "json")...)
				p.run(t, with("serve", "--http", "127.0.0.1:0", "--grpc", "off")...)
				p.run(t, with("entity", "list")...)
			}
			p.search(t)
			if len(p.seen["traces"]) == 0 || len(p.seen["events"]) == 0 {
				t.Errorf("%d bytes of traces, %d of events", len(p.seen["traces"]), len(p.seen["events"]))
			}
		})
	}
}

// plant puts the secrets into their places.
func (p *plant) plant(t *testing.T, how string, places []string) {
	t.Helper()
	p.env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "AWS_ACCESS_KEY_ID=AKIAPLANTED", "AWS_REGION=eu-central-1")
	flags := make(map[string][]string) // variable → path in the configuration file
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			path := kit.CommandPath(cmd)
			flags[kit.Variable(path, f.Name)] = append(path, f.Name)
		})
	})
	conf := new(strings.Builder)
	tree := make(map[string]string) // of serve, governor proxy, load run, load worker
	for _, place := range places {
		value, path := p.secrets[place], flags[place]
		if place == "OTEL_EXPORTER_OTLP_HEADERS" || place == "OTEL_EXPORTER_OTLP_TRACES_HEADERS" {
			value = "authorization=" + value
		}
		takesFile := path != nil || strings.HasPrefix(place, "WEIR_")
		switch {
		case how == "files" && takesFile:
			p.env = append(p.env, place+"_FILE="+p.file(t, place, value+"\n"))
		case how == "configuration" && path != nil:
			tree[strings.Join(path, ".")] = value
		default:
			p.env = append(p.env, place+"="+value)
		}
	}
	groups := make(map[string][]string)
	for path, value := range tree {
		i := strings.LastIndex(path, ".")
		groups[path[:i]] = append(groups[path[:i]], path[i+1:]+": "+value)
	}
	fmt.Fprintf(conf, "serve: {%s}\ngovernor: {proxy: {%s}}\nload:\n  run: {%s}\n  worker: {%s}\n", strings.Join(groups["serve"], ", "),
		strings.Join(groups["governor.proxy"], ", "), strings.Join(groups["load.run"], ", "), strings.Join(groups["load.worker"], ", "))
	p.file(t, "conf.yaml", conf.String())
	delete(groups, "serve")
	delete(groups, "load.run")
	delete(groups, "load.worker")
	delete(groups, "governor.proxy")
	if len(groups) > 0 {
		t.Errorf("secrets of these commands are not planted: %v", groups)
	}
}

// TestAddresses gives each flag that takes an address one with a password, in the environment: no error shows it.
func TestAddresses(t *testing.T) {
	t.Parallel()
	manifest := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(manifest, []byte("namespace: default\nresources: {b: {limits: {rpm: {capacity: 5}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	more := map[string][]string{ // arguments of commands
		"limits apply": {"-f", manifest, "--store", "memory:", "--stage", "100%", "--bake", "1ms", "--abort-on", "refusal_rate>0.5", "--yes"},
		"serve":        {"--store", "memory:", "--http", "127.0.0.1:0", "--grpc", "off", "--trace-ratio", "1"},
		"load run":     {"simple", "--no-setup", "--for", "10ms", "--warm-up", "0s"},
		"load worker":  {"--listen", "127.0.0.1:x"},
	}
	var tries sync.WaitGroup
	tried := 0
	try := func(cmd *cobra.Command, f *pflag.Flag, variable string) {
		path := kit.CommandPath(cmd)
		args := slices.Concat(path, more[strings.Join(path, " ")])
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if !strings.HasPrefix(word, "[") {
				args = append(args, "x")
			}
		}
		tried++
		tries.Go(func() {
			for _, address := range []string{
				"http://ann:pl4nted@127.0.0.1:1/", "redis://ann:pl4nted@127.0.0.1:1", "http://ann:pl4nted@127.0.0.1:x",
				"ftp://ann:pl4nted@h/?q#f", "dynamodb://t?endpoint=http://ann:pl4nted@127.0.0.1:1",
				"nosql://ann:pl4nted@127.0.0.1", "http://[ann:pl4nted@h",
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // servers run until then
				var out bytes.Buffer
				a := kit.New(strings.NewReader(""), &out, &out, []string{variable + "=" + address, "WEIR_SERVE_WEBHOOK_SECRET=sixteen bytes and more"})
				r := root(a)
				r.SetArgs(args)
				r.SetOut(&out)
				r.SetErr(&out)
				a.Execute(ctx, r)
				cancel()
				if strings.Contains(out.String(), "pl4nted") {
					t.Errorf("%s --%s %s: %s", cmd.CommandPath(), f.Name, address, out.String())
				}
			}
		})
	}
	walk(root(kit.New(nil, io.Discard, io.Discard, nil)), func(cmd *cobra.Command) {
		flags := cmd.LocalNonPersistentFlags()
		if !cmd.HasParent() { // those that all commands have
			flags = cmd.PersistentFlags()
			cmd, _, _ = cmd.Find([]string{"entity", "list"})
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name == "URL" || name == "ARCHIVE" {
				variable := kit.Variable(kit.CommandPath(cmd), f.Name)
				if cmd.Root().PersistentFlags().Lookup(f.Name) == f {
					variable = kit.Variable(nil, f.Name)
				}
				try(cmd, f, variable)
			}
		})
	})
	if tries.Wait(); tried < 15 {
		t.Errorf("only %d flags", tried)
	}
}
