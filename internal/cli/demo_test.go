package cli_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo runs the demo, and the commands that it prints last, which go on in its store.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the demo uses curl")
	}
	bin := filepath.Join(t.TempDir(), "bin")
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = "../.."
		cmd.Env = append(cmd.Environ(), "BIN="+bin, "LOG=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	printed := run("sh", "scripts/demo.sh")
	_, rest, _ := strings.Cut(printed, "# continue by hand, in the store of the demo\n")
	rest, _, found := strings.Cut(rest, bin+"/weir serve ")
	if !found {
		t.Fatalf("no commands to continue with:\n%s", printed)
	}
	var script strings.Builder
	for line := range strings.Lines(rest) {
		command, comment, _ := strings.Cut(strings.TrimSpace(line), "#")
		switch strings.TrimSpace(comment) {
		case "refused":
			script.WriteString("! " + command + " || exit 9\n")
		default:
			script.WriteString(command + " || exit\n")
		}
	}
	out := run("sh", "-c", script.String())
	for _, want := range []string{"team-red", "refused, retry in", "rpm of key-carol binds", "key-alice"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
