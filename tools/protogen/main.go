// Command protogen generates the Go code of the protos under api, without protoc; run it in tools. With -check it
// writes nothing, and fails if the committed code differs from what it would write. It requires a comment on
// everything.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const root = "../api"

// plugins are the generators, which are tools of go.mod, with their parameters.
var plugins = map[string]string{
	"protoc-gen-go":         "paths=source_relative",
	"protoc-gen-go-grpc":    "paths=source_relative",
	"protoc-gen-go-vtproto": "paths=source_relative,features=marshal+unmarshal+size",
}

func main() {
	check := flag.Bool("check", false, "write nothing; fail if something would change")
	flag.Parse()
	if err := run(context.Background(), *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	paths, err := filepath.Glob(root + "/*/*/*.proto")
	if err != nil {
		return err
	}
	for i := range paths {
		if paths[i], err = filepath.Rel(root, paths[i]); err != nil {
			return err
		}
		paths[i] = filepath.ToSlash(paths[i])
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, paths...)
	if err != nil {
		return err
	}
	if err := documented(files); err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: paths}
	seen := make(map[string]bool)
	for _, f := range files {
		req.ProtoFile = appendFile(req.ProtoFile, seen, f)
	}
	for plugin, parameter := range plugins {
		req.Parameter = proto.String(parameter)
		generated, err := generate(ctx, plugin, req)
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, f := range generated {
			if err := put(filepath.Join(root, f.GetName()), f.GetContent(), check); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendFile appends a file's descriptor after those that it imports.
func appendFile(
	to []*descriptorpb.FileDescriptorProto, seen map[string]bool, f protoreflect.FileDescriptor,
) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return to
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		to = appendFile(to, seen, f.Imports().Get(i))
	}
	return append(to, protodesc.ToFileDescriptorProto(f))
}

// generate runs a plugin, a tool of go.mod.
func generate(
	ctx context.Context, plugin string, req *pluginpb.CodeGeneratorRequest,
) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		return nil, errors.New(resp.GetError())
	}
	return resp.GetFile(), nil
}

func put(name, content string, check bool) error {
	has, err := os.ReadFile(name)
	switch {
	case err == nil && string(has) == content:
		return nil
	case check:
		return fmt.Errorf("%s is not what its proto says: run make generate", filepath.ToSlash(name))
	}
	return os.WriteFile(name, []byte(content), 0o644)
}

// documented returns an error that names everything without a comment.
func documented(files linker.Files) error {
	var errs []error
	for _, f := range files {
		check := func(d protoreflect.Descriptor) {
			if strings.TrimSpace(f.SourceLocations().ByDescriptor(d).LeadingComments) == "" {
				errs = append(errs, fmt.Errorf("%s: %s has no comment", f.Path(), d.FullName()))
			}
		}
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			check(m)
			for j := range m.Fields().Len() {
				check(m.Fields().Get(j))
			}
		}
		for i := range f.Enums().Len() {
			e := f.Enums().Get(i)
			check(e)
			for j := range e.Values().Len() {
				check(e.Values().Get(j))
			}
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			check(s)
			for j := range s.Methods().Len() {
				check(s.Methods().Get(j))
			}
		}
	}
	return errors.Join(errs...)
}
