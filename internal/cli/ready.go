package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/client"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// readyAgain is how long weir ready --wait waits between attempts.
const readyAgain = 100 * time.Millisecond

func readyCmd(a *kit.Run) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "ready [URL]", Short: "Check that a server is ready, for images without curl",
		Long: `Reads /readyz of a server, by default of --server. It exits with 0 if the server is ready, and
otherwise with 5; with --wait, only once that time is over. It sends no token: if the server
requires client certificates, name the address of its --probes.`,
		Example: "  weir ready http://127.0.0.1:8082\n  weir ready http://127.0.0.1:8080 --wait 5s",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			url := string(a.Server)
			if len(args) > 0 {
				url = args[0]
			}
			switch {
			case url == "":
				return kit.Usagef("no server: give its URL, such as http://127.0.0.1:8080")
			case wait < 0:
				return kit.Usagef("--wait must be 0s or more: %v", wait)
			}
			base, err := client.Base(url)
			if err != nil {
				return kit.Usage(err)
			}
			return untilReady(cmd.Context(), wait, func() error { return ready(cmd.Context(), a, base.String()) })
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait at most this `DURATION` for the server to become ready")
	return cmd
}

// untilReady repeats an attempt until it succeeds, it cannot succeed, or the time is over. It returns the last error.
func untilReady(ctx context.Context, wait time.Duration, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	again := time.NewTicker(readyAgain)
	defer again.Stop()
	for {
		err := attempt()
		if err == nil || kit.CodeOf(err) != kit.Unavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}

func ready(ctx context.Context, a *kit.Run, url string) error {
	via, err := a.Transport("server")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return kit.Usage(err)
	}
	resp, err := secret.Client(kit.Patience, via).Do(req)
	if err != nil {
		return kit.WithCode(err, kit.Unavailable)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // what it lacks; may be empty
		return kit.WithCode(fmt.Errorf("%s is not ready: %s: %s", url, resp.Status, text), kit.Unavailable)
	}
	return kit.Did(a, "%s is ready", url)
}
