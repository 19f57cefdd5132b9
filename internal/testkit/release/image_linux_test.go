package release_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// instruction is one of a Containerfile.
type instruction struct{ name, rest string }

func instructions(t *testing.T) (all []instruction) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "contrib", "container", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			name, rest, _ := strings.Cut(line, " ")
			all = append(all, instruction{name, rest})
		}
	}
	return all
}

// image is what the instructions make, in a folder in place of the base image's files.
type image struct {
	root, user, workdir, health string
	env, entrypoint, cmd        []string
	volumes                     []string
}

var quoted = regexp.MustCompile(`"([^"]*)"`)

// list returns the elements of ["a", "b"].
func list(text string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// build follows the instructions, with the files of a folder.
func build(t *testing.T, from map[string][]byte) *image {
	t.Helper()
	im := &image{root: t.TempDir()}
	args := strings.NewReplacer("${TARGETOS}", runtime.GOOS, "${TARGETARCH}", runtime.GOARCH)
	for _, step := range instructions(t) {
		switch step.name {
		case "FROM": // a base image without a shell, with a folder of its user
			if step.rest != "gcr.io/distroless/static-debian12:nonroot" {
				t.Fatalf("the base image is %s: what does it hold?", step.rest)
			}
			im.mkdir(t, "/home/nonroot", 65532)
		case "ARG", "EXPOSE":
		case "COPY":
			source, target, _ := strings.Cut(args.Replace(step.rest), " ")
			im.mkdir(t, filepath.Dir(target), 0)
			if from[source] == nil {
				t.Fatalf("COPY %s: make dist builds no such file", source)
			}
			if err := os.WriteFile(filepath.Join(im.root, target), from[source], 0o755); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
		case "USER":
			im.user = step.rest
		case "WORKDIR":
			im.workdir = step.rest
		case "ENV":
			im.env = append(im.env, step.rest)
		case "VOLUME":
			im.volumes = list(step.rest)
		case "HEALTHCHECK":
			_, im.health, _ = strings.Cut(step.rest, "CMD ")
		case "ENTRYPOINT":
			im.entrypoint = list(step.rest)
		case "CMD":
			im.cmd = list(step.rest)
		default:
			t.Fatalf("%s %s: unknown to this test", step.name, step.rest)
		}
	}
	return im
}

func (im *image) mkdir(t *testing.T, path string, owner int) {
	t.Helper()
	path = filepath.Join(im.root, path)
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as in an image
		t.Fatal(err)
	}
	if err := os.Chown(path, owner, owner); err != nil {
		t.Fatal(err)
	}
}

// command returns a program of the image, run as the image's user in its working directory, with its root and variables.
func (im *image) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = im.workdir, im.env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: im.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
	return cmd
}

// files returns the files of the image outside its volumes.
func (im *image) files(t *testing.T) (paths []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(im.root), ".", func(path string, d fs.DirEntry, err error) error {
		if slices.Contains(im.volumes, "/"+path) {
			return fs.SkipDir
		}
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestImage follows the Containerfile without a container engine: it puts the program of make dist into an empty folder, and
// runs the image's command there as its user, with the folder as the root. The image's health check fails, then succeeds,
// then fails again, and nothing is written outside the volume.
func TestImage(t *testing.T) {
	t.Parallel()
	needDist(t)
	if os.Getuid() != 0 {
		t.Skip("only root can change the root of a process")
	}
	im := build(t, shared(t))
	if im.user != "65532:65532" {
		t.Fatalf("the user is %s", im.user)
	}
	before := im.files(t)
	port, err := porttest.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	address := strings.NewReplacer(":8082", ":"+port)
	for i := range im.env {
		im.env[i] = address.Replace(im.env[i])
	}
	im.env = append(im.env, "WEIR_SERVE_HTTP=127.0.0.1:0", "WEIR_SERVE_GRPC=127.0.0.1:0")
	health := list(address.Replace(im.health))
	healthy := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		out, err := im.command(ctx, health...).CombinedOutput()
		t.Logf("health: %v: %s", err, out)
		return err == nil
	}

	if healthy() {
		t.Error("healthy before it runs")
	}
	var log strings.Builder
	server := im.command(t.Context(), append(im.entrypoint, im.cmd...)...)
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for !healthy() {
		if time.Now().After(deadline) {
			_ = server.Process.Kill()
			_ = server.Wait()
			t.Fatalf("not healthy after a minute: %s", log.String())
		}
		time.Sleep(100 * time.Millisecond) // real time: another process opens its port
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("ends with %v: %s", err, log.String())
	}
	if healthy() {
		t.Error("healthy after it ended")
	}
	if after := im.files(t); !slices.Equal(before, after) {
		t.Errorf("files outside of %q: %q, before %q", im.volumes, after, before)
	}
	if _, err := os.Stat(filepath.Join(im.root, "home", "nonroot", "weir-data", "weir.db")); err != nil {
		t.Error(err)
	}
}
