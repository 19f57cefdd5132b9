// Command sbom prints a CycloneDX 1.5 list of what a program is made of: Go and the modules that are linked into it, as
// the program itself records them. Of a zip file, such as the one of the Lambda functions, it reads each program. The
// same programs produce the same bytes.
//
//	sbom dist/weir-linux-arm64 internal/aws/function/pack/weir-lambda.zip
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// bom is a CycloneDX document, and component a part of it.
type (
	bom struct {
		Format   string `json:"bomFormat"`
		Spec     string `json:"specVersion"`
		Version  int    `json:"version"`
		Metadata struct {
			Component component `json:"component"`
		} `json:"metadata"`
		Components []component `json:"components"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
		PURL    string `json:"purl"`
		Hashes  []hash `json:"hashes,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the list of a program and of what is embedded in it.
func run(out io.Writer, paths []string) error {
	if len(paths) == 0 {
		return errors.New("which program?")
	}
	var list bom
	list.Format, list.Spec, list.Version = "CycloneDX", "1.5", 1
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		programs := [][]byte{content}
		if strings.HasSuffix(path, ".zip") {
			if programs, err = unzip(content); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		for _, p := range programs {
			info, err := buildinfo.Read(bytes.NewReader(p))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			list.Components = append(list.Components, parts(info)...)
			if i == 0 {
				sum := sha256.Sum256(content)
				list.Metadata.Component = part("application", info.Main.Path, info.Main.Version)
				list.Metadata.Component.Name = filepath.Base(path)
				list.Metadata.Component.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
			}
		}
	}
	slices.SortFunc(list.Components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	list.Components = slices.CompactFunc(list.Components, func(a, b component) bool { return a.Ref == b.Ref })
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

func unzip(content []byte) (files [][]byte, err error) {
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		files = append(files, text)
	}
	return files, nil
}

// parts returns Go's library and the modules of a program.
func parts(info *debug.BuildInfo) []component {
	all := []component{part("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, part("library", m.Path, m.Version))
	}
	return all
}

func part(kind, path, version string) component {
	ref := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: kind, Ref: ref, Name: path, Version: version, PURL: ref}
}
