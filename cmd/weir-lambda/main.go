// Command weir-lambda runs weir as a Lambda function on a table. WEIR_LAMBDA selects what the function does; see
// docs/aws/lambda.md.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	ctx := context.Background()
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	handler, err := handlerOf(ctx, env{get: os.Getenv}, log)
	if err != nil {
		fmt.Fprintln(os.Stderr, "weir-lambda:", err)
		os.Exit(1)
	}
	lambda.StartWithOptions(handler, lambda.WithContext(ctx))
}
