package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
)

func readyCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use: "ready [URL]", Short: "Check that a server is ready, for images without curl",
		Long: `Reads /readyz of a server, by default of --server. It exits with 0 if the server is ready, and
otherwise with 5. It sends no token: if the server requires client certificates, name the address
of its --probes.`,
		Example: "  weir ready http://127.0.0.1:8082",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			url := string(a.Server)
			if len(args) > 0 {
				url = args[0]
			}
			if url == "" {
				return kit.Usagef("no server: give its URL, such as http://127.0.0.1:8080")
			}
			return ready(cmd.Context(), a, strings.TrimSuffix(url, "/"))
		},
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
