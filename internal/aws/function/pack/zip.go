// Package pack provides the code of weir's Lambda functions: cmd/weir-lambda for linux/arm64, as a zip that
// contains it as bootstrap, for the runtime provided.al2023.
//
// A released weir embeds the package (build tag weir_embed; make dist). Any other weir builds it with the go command.
// The same source and Go version produce the same bytes.
package pack

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tags exclude protocols that neither Lambda's runtime nor AWS's endpoints use.
const tags = "lambda.norpc,nethttpomithttp2"

const program = "github.com/weirlimits/weir/cmd/weir-lambda"

// Source describes where the package comes from.
func Source() string {
	if embedded != nil {
		return "the one in this weir"
	}
	return "built from source by the go command, since this weir contains none"
}

// Zip returns the package and its SHA-256 in hexadecimal.
//
// It fails if this binary neither embeds the package nor can build it; the error describes what to do.
func Zip(ctx context.Context) (content []byte, sum string, err error) {
	if content = embedded; content == nil {
		if content, err = Build(ctx); err != nil {
			return nil, "", err
		}
	}
	hash := sha256.Sum256(content)
	return content, hex.EncodeToString(hash[:]), nil
}

// Build builds the package from source, in the module of the working directory or one that it depends on.
//
// Errors: no go command, no source, or the go command's own error.
func Build(ctx context.Context) ([]byte, error) {
	binary, err := compile(ctx)
	if err != nil {
		return nil, fmt.Errorf("build the Lambda package: %w", err)
	}
	return pack(binary)
}

func compile(ctx context.Context) ([]byte, error) {
	const instead = "use a released weir, which holds it, run in a clone of weir's repository where Go is installed " +
		"(go install leaves no source behind), or name your own package with --code-bucket and --code-key"
	tool, err := exec.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("this weir does not hold the package, and there is no go command: %s", instead)
	}
	dir, err := os.MkdirTemp("", "weir-lambda-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "bootstrap")
	if text, err := run(ctx, tool, "list", program); err != nil {
		return nil, fmt.Errorf(
			"this weir does not hold the package, and go finds no source of it here (%s): %s", firstLine(text, err),
			instead,
		)
	}
	text, err := run(
		ctx, tool, "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w -buildid=", "-o", out,
		program,
	)
	if err != nil {
		return nil, fmt.Errorf("go build: %s", firstLine(text, err))
	}
	return os.ReadFile(out)
}

// run runs the go command for Lambda's platform, regardless of the environment.
func run(ctx context.Context, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(
		os.Environ(), "GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=",
	)
	return cmd.CombinedOutput()
}

// firstLine returns the first line of a failed command's output, skipping package names.
func firstLine(text []byte, err error) string {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") &&
			!strings.HasPrefix(line, "go: downloading") {
			return line
		}
	}
	return err.Error()
}

// pack zips the program under the name that the runtime starts. Everything but the program is constant.
func pack(binary []byte) ([]byte, error) {
	var b bytes.Buffer
	zw := zip.NewWriter(&b)
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	h.SetMode(0o755)
	w, err := zw.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(binary))
	}
	if err = errors.Join(err, zw.Close()); err != nil {
		return nil, fmt.Errorf("zip the Lambda package: %w", err)
	}
	return b.Bytes(), nil
}
