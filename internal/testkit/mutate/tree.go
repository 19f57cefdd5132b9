package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// snapshot copies to a directory the files under root that git tracks or would not ignore.
func snapshot(ctx context.Context, root, dir string) error {
	ls := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	ls.Dir = root
	out, err := output(ls)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return nil // deleted, not yet staged
	} else if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// apply patches the tree in a directory, even if the directory lies inside another repository.
func apply(ctx context.Context, dir, patch string) error {
	cmd := exec.CommandContext(ctx, "git", "apply", patch)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_DIR=")
	_, err := output(cmd)
	return err
}

// output runs a command; its standard error becomes the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf(
			"%s: %w: %s", strings.Join(cmd.Args[:2], " "), err, strings.TrimSpace(complaint.String()),
		)
	}
	return out, nil
}
