// Command zip builds weir's Lambda package for make dist: zip FILE.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/weirlimits/weir/internal/aws/function/pack"
)

func main() {
	content, err := pack.Build(context.Background())
	if err == nil {
		err = os.WriteFile(os.Args[1], content, 0o644) //nolint:gosec // not a secret
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
