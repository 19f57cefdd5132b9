// Command weir is a rate limiter: it serves decisions, configures limits, and replays logs against them.
package main

import (
	"context"
	"os"

	"github.com/weirlimits/weir/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
