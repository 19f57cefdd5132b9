// Package lambdapkg is the code of weir's Lambda functions: cmd/weir-lambda for linux/arm64 as Lambda takes it, a zip
// that holds it as bootstrap, for the runtime provided.al2023.
//
// A released weir holds it (build tag weir_embed; make dist). Any other builds it with the go command. Of the same
// source and the same Go it is the same, byte for byte.
package lambdapkg

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

// tags leave out what Lambda's runtime and AWS's endpoints do not speak.
const tags = "lambda.norpc,nethttpomithttp2"

const program = "github.com/weirlimits/weir/cmd/weir-lambda"

// Zip returns the package and the SHA-256 of it, in hexadecimal.
//
// Errors: neither does this binary hold it nor can it be built, with what to do.
func Zip(ctx context.Context) (content []byte, sum string, err error) {
	if content = embedded; content == nil {
		if content, err = Build(ctx); err != nil {
			return nil, "", err
		}
	}
	hash := sha256.Sum256(content)
	return content, hex.EncodeToString(hash[:]), nil
}

// Build builds the package from source: of the module that the working directory is in, or that it depends on.
//
// Errors: no go command, no source, or what the go command says.
func Build(ctx context.Context) ([]byte, error) {
	binary, err := compile(ctx)
	if err != nil {
		return nil, fmt.Errorf("build the Lambda package: %w", err)
	}
	return pack(binary)
}

func compile(ctx context.Context) ([]byte, error) {
	const instead = "use a released weir, which holds the package, or run in a working tree of weir where Go is installed"
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
		return nil, fmt.Errorf("this weir does not hold the package, and go finds no source of it here (%s): %s", firstLine(text, err), instead)
	}
	text, err := run(ctx, tool, "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w -buildid=", "-o", out, program)
	if err != nil {
		return nil, fmt.Errorf("go build: %s", firstLine(text, err))
	}
	return os.ReadFile(out)
}

// run runs the go command for the machines of Lambda, whatever it is set to otherwise.
func run(ctx context.Context, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=")
	return cmd.CombinedOutput()
}

// firstLine is what a failed command said first, but for the names of packages.
func firstLine(text []byte, err error) string {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading") {
			return line
		}
	}
	return err.Error()
}

// pack zips the program under the name that the runtime starts. All but the program is fixed.
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
